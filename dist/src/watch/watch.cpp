#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/dist/watch/watch.hpp>
#include <optional>
#include <set>
#include <span>
#include <thread>

#include "inquiry.hpp"
#include "reachability.hpp"
#include "side_channel.hpp"

namespace heddle {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

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
  status.groups = std::clamp(status.groups, 0, static_cast<int>(RankStatus::max_groups));
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
    inquiry.emplace(options.hang_seconds, channel->size(), channel->rank());
    reachability.emplace(*channel);
    thread = std::jthread([this](std::stop_token const& stop) { watch(stop); });
    reachability->probe(world);
    activity->heartbeat();  // none of them has been idle
  }
  ~State() {
    if (thread.joinable()) {
      thread.request_stop();
      channel->wake();
      thread.join();
    }
  }

  void watch(std::stop_token const& stop);
  /// Handles at most one message, waiting for it at most this long, and measures time. Returns whether one came.
  bool look(std::chrono::milliseconds timeout);
  void handle(SideChannel::Message const& message);
  /// Asks the other ranks, or reports a hang, if it is time.
  void investigate();
  void report_hang();
  RankStatus own_status() const;

  Options options;
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();
  std::optional<SideChannel> channel;
  std::optional<Reachability> reachability;
  std::chrono::milliseconds tick{};

  // The thread's own.
  Clock::time_point last_look = Clock::now();
  std::uint64_t last_events = 0;
  std::uint64_t last_polls = 0;
  std::optional<Clock::time_point> last_poll;
  double elapsed = 0;  ///< since the start, without time in which this process was stopped
  double idle = 0;     ///< such seconds since the last event
  double trust_until = 0;
  std::optional<Inquiry> inquiry;
  bool reachability_known = false;
  bool ended = false;

  std::jthread thread;
};

RankStatus Watch::State::own_status() const {
  RankStatus status = activity->status();
  status.idle_seconds = idle;
  // A rank that sleeps between polls waits all the time, unlike one that computes.
  status.waits = status.waits || (last_poll && Clock::now() - *last_poll < Seconds(options.hang_seconds / 2));
  return status;
}

bool Watch::State::look(std::chrono::milliseconds timeout) {
  auto const message = channel->receive(timeout);
  auto const now = Clock::now();
  // A longer time means that this process was stopped or got no processor.
  double const since = Seconds(now - last_look).count();
  double const passed = since > 2 * Seconds(tick).count() ? Seconds(tick).count() : since;
  last_look = now;
  elapsed += passed;
  std::uint64_t const events = activity->events();
  if (events != last_events) {
    last_events = events;
    idle = 0;
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
  return message.has_value();
}

void Watch::State::handle(SideChannel::Message const& message) {
  switch (message.kind) {
    case SideChannel::Kind::question: {
      RankStatus const status = own_status();
      channel->answer(message, SideChannel::Kind::status, std::as_bytes(std::span(&status, 1)));
      // One rank that can decide is enough, of several that ask at once the lowest: this rank leaves it to that one for
      // a while.
      if (!message.content.empty() && (message.sender < channel->rank() || !inquiry->is_open())) {
        trust_until = elapsed + options.hang_seconds / 4;
      }
      break;
    }
    case SideChannel::Kind::status:
      if (message.content.size() == sizeof(RankStatus)) {
        reachability->answered(message.sender);
        inquiry->answered(message.sender, status_from(message.content), elapsed);
      }
      break;
    case SideChannel::Kind::report:
      if (message.content.size() > 1 && !ended) {
        ended = true;
        options.on_hang({reinterpret_cast<char const*>(message.content.data()) + 1, message.content.size() - 1},
                        message.content.front() != std::byte{0});
      }
      break;
  }
}

void Watch::State::watch(std::stop_token const& stop) {
  while (!stop.stop_requested()) {
    look(tick);
    if (!ended) {
      investigate();
    }
  }
}

void Watch::State::investigate() {
  if (!reachability_known && reachability->is_known()) {
    reachability_known = true;
    for (int rank = 0; rank < channel->size(); ++rank) {
      inquiry->set_reachable(rank, reachability->reachable(rank));
    }
  }
  if (!reachability_known || elapsed < trust_until) {
    inquiry->close();
    return;
  }
  switch (inquiry->next(own_status(), elapsed)) {
    case Inquiry::Action::none:
      break;
    case Inquiry::Action::ask: {
      // A question that has content says that this rank can decide.
      std::vector<std::byte> const content(inquiry->reaches_all() ? 1 : 0);
      int asked = 0;
      for (int rank = 0; rank < channel->size() && !ended; ++rank) {
        if (rank == channel->rank()) {
          continue;
        }
        channel->send(rank, SideChannel::Kind::question, content);
        constexpr int at_once = 64;
        if (++asked % at_once == 0) {
          while (look(std::chrono::milliseconds(1))) {  // more answers at once would not fit into the socket's memory
          }
        }
      }
      break;
    }
    case Inquiry::Action::report:
      report_hang();
      break;
  }
}

void Watch::State::report_hang() {
  ended = true;
  auto const& statuses = inquiry->statuses();
  std::vector<std::string> hosts;
  for (int rank = 0; rank < channel->size(); ++rank) {
    hosts.push_back(channel->host(rank));
  }
  std::string const report = hang_report(options.hang_seconds, hosts, statuses);
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
    std::string const content = std::string(1, first ? '\1' : '\0') + report;
    channel->send(rank, SideChannel::Kind::report, std::as_bytes(std::span(content)));
  }
  options.on_hang(report, prints);
}

Watch::Watch(Communicator const& world, Options options) : state_(std::make_unique<State>(world, std::move(options))) {}

Watch::~Watch() = default;

std::shared_ptr<CommunicatorBackend> Watch::watched(std::shared_ptr<CommunicatorBackend> world) {
  return state_->channel ? watched_backend(std::move(world), state_->activity) : world;
}

std::string const& Watch::unreachable() const {
  static std::string const none;
  return state_->reachability ? state_->reachability->unreachable() : none;
}

void Watch::phase(char const* name, std::int64_t step) {
  state_->activity->set_phase(name, step, false);
}

void Watch::finish(char const* name, std::int64_t step) {
  state_->activity->set_phase(name, step, true);
}

void Watch::heartbeat() {
  state_->activity->heartbeat();
}

}  // namespace heddle
