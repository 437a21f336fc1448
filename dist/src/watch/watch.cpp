#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/dist/watch/watch.hpp>
#include <optional>
#include <set>
#include <span>
#include <thread>

#include "checked_backend.hpp"
#include "hang_report.hpp"
#include "side_channel.hpp"
#include "watched_backend.hpp"

namespace heddle {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int questions = 3;
constexpr auto between_questions = std::chrono::milliseconds(300);
/// A rank that was asked lets the one that asked decide for this long.
constexpr auto trust_in_another = std::chrono::seconds(3);
constexpr std::uint64_t world_id = 1;

/// Lets the other processes print before mpirun ends them.
[[noreturn]] void end_process(std::string const& report, bool prints) {
  if (prints) {
    std::string const text = "heddle: " + report;
    static_cast<void>(::write(STDERR_FILENO, text.data(), text.size()));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  _exit(static_cast<int>(ExitCode::rank_hung));
}

RankStatus status_from(std::span<std::byte const> content) {
  RankStatus status;
  std::memcpy(static_cast<void*>(&status), content.data(), sizeof status);
  status.members = std::max(status.members, 0);
  status.groups = std::clamp(status.groups, 0, static_cast<int>(RankStatus::most_groups));
  return status;
}

}  // namespace

/// The thread and what it reads.
struct Watch::State {
  State(Communicator const& world, Options given) : options(std::move(given)) {
    if (options.hang_seconds <= 0) {
      return;
    }
    channel.emplace(world);
    if (!options.on_hang) {
      options.on_hang = end_process;
    }
    auto const limit = std::chrono::duration_cast<std::chrono::milliseconds>(Seconds(options.hang_seconds));
    tick = std::clamp(limit / 20, std::chrono::milliseconds(5), std::chrono::milliseconds(1000));
    thread = std::jthread([this](std::stop_token const& stop) { watch(stop); });
  }
  ~State() {
    if (thread.joinable()) {
      thread.request_stop();
      channel->wake();
      thread.join();
    }
  }
  State(State const&) = delete;
  State& operator=(State const&) = delete;

  void watch(std::stop_token const& stop);
  /// Handles at most one message, waiting for it at most this long, and measures time.
  void look(std::chrono::milliseconds patience);
  void handle(SideChannel::Message const& message);
  /// Asks all ranks; ends with a verdict if none has made progress.
  void investigate(std::stop_token const& stop);
  void pronounce();
  RankStatus own_status() const;

  Options options;
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();
  std::optional<SideChannel> channel;
  std::chrono::milliseconds tick{};

  // The thread's own.
  Clock::time_point last_look = Clock::now();
  std::uint64_t last_events = 0;
  std::uint64_t last_polls = 0;
  std::optional<Clock::time_point> last_poll;
  double idle = 0;
  double next_investigation = 0;  ///< of `idle`
  Clock::time_point trust_until = Clock::now();
  std::vector<std::optional<RankStatus>> statuses;
  bool ended = false;

  std::jthread thread;
};

RankStatus Watch::State::own_status() const {
  RankStatus status = activity->status();
  status.idle_seconds = idle;
  // Unlike a rank that computes, one that rests between polls does so all the time.
  status.waits = status.waits || (last_poll && Clock::now() - *last_poll < Seconds(options.hang_seconds / 2));
  return status;
}

void Watch::State::look(std::chrono::milliseconds patience) {
  auto const message = channel->receive(patience);
  auto const now = Clock::now();
  // A longer time means that this process was stopped or got no processor.
  double const passed = std::min(Seconds(now - last_look).count(), 2 * Seconds(tick).count());
  last_look = now;
  std::uint64_t const events = activity->events();
  if (events != last_events) {
    last_events = events;
    idle = 0;
    next_investigation = options.hang_seconds;
  } else {
    idle += passed;
  }
  if (std::uint64_t const polls = activity->polls(); polls != last_polls) {
    last_polls = polls;
    last_poll = now;
  }
  if (message) {
    handle(*message);
  }
}

void Watch::State::handle(SideChannel::Message const& message) {
  switch (message.kind) {
    case SideChannel::Kind::question: {
      RankStatus const status = own_status();
      channel->send(message.sender, SideChannel::Kind::status, std::as_bytes(std::span(&status, 1)));
      if (message.sender < channel->rank()) {
        trust_until = Clock::now() + trust_in_another;
      }
      break;
    }
    case SideChannel::Kind::status:
      if (message.content.size() == sizeof(RankStatus) && !statuses.empty()) {
        statuses[static_cast<std::size_t>(message.sender)] = status_from(message.content);
      }
      break;
    case SideChannel::Kind::verdict:
      if (message.content.size() > 1 && !ended) {
        ended = true;
        options.on_hang({reinterpret_cast<char const*>(message.content.data()) + 1, message.content.size() - 1},
                        message.content.front() != std::byte{0});
      }
      break;
  }
}

void Watch::State::watch(std::stop_token const& stop) {
  next_investigation = options.hang_seconds;
  while (!stop.stop_requested()) {
    look(tick);
    if (!ended && idle >= next_investigation && Clock::now() >= trust_until) {
      investigate(stop);
    }
  }
}

void Watch::State::investigate(std::stop_token const& stop) {
  statuses.assign(static_cast<std::size_t>(channel->size()), std::nullopt);
  statuses[static_cast<std::size_t>(channel->rank())] = own_status();
  auto const unanswered = [&] {
    return std::ranges::any_of(statuses, [](auto const& status) { return !status.has_value(); });
  };
  for (int question = 0; question < questions && unanswered(); ++question) {
    for (int rank = 0; rank < channel->size(); ++rank) {
      if (!statuses[static_cast<std::size_t>(rank)]) {
        channel->send(rank, SideChannel::Kind::question);
      }
    }
    auto const until = Clock::now() + between_questions;
    while (unanswered() && Clock::now() < until && !stop.stop_requested() && !ended) {
      look(std::min(tick, between_questions));
    }
  }
  if (ended || stop.stop_requested() || idle < options.hang_seconds) {
    return;
  }
  double least = idle;
  for (auto const& status : statuses) {
    least = std::min(least, status ? status->idle_seconds : least);
  }
  if (least + 2 * Seconds(tick).count() < options.hang_seconds) {
    next_investigation = idle + options.hang_seconds - least;
    return;
  }
  pronounce();
}

void Watch::State::pronounce() {
  ended = true;
  HangEvidence evidence{options.hang_seconds, {}, statuses};
  for (int rank = 0; rank < channel->size(); ++rank) {
    evidence.hosts.push_back(channel->host(rank));
  }
  std::string const report = hang_report(evidence);
  std::set<std::string> printing;  // hosts with a rank that prints
  bool prints = true;
  for (int rank = 0; rank < channel->size(); ++rank) {
    if (!statuses[static_cast<std::size_t>(rank)]) {
      continue;
    }
    bool const first = printing.insert(channel->host(rank)).second;
    if (rank == channel->rank()) {
      prints = first;
      continue;
    }
    std::string const verdict = std::string(1, first ? '\1' : '\0') + report;
    channel->send(rank, SideChannel::Kind::verdict, std::as_bytes(std::span(verdict)));
  }
  options.on_hang(report, prints);
}

Watch::Watch(Communicator const& world, Options options) : state_(std::make_unique<State>(world, std::move(options))) {}

Watch::~Watch() = default;

std::shared_ptr<CommunicatorBackend> Watch::watched(std::shared_ptr<CommunicatorBackend> world) {
  if (!state_->channel) {
    return world;
  }
  NamedGroup group = world_group(*world);
  return std::make_shared<WatchedBackend>(std::move(world), state_->activity, std::move(group), world_id);
}

void Watch::phase(char const* name, std::int64_t step) {
  state_->activity->set_phase(name, step);
}

void Watch::beat() {
  state_->activity->beat();
}

std::shared_ptr<CommunicatorBackend> checked(std::shared_ptr<CommunicatorBackend> world) {
  NamedGroup group = world_group(*world);
  return std::make_shared<CheckedBackend>(std::move(world), std::move(group));
}

}  // namespace heddle
