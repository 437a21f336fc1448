#include "reachability.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <heddle/core/parallel/host_values.hpp>
#include <set>
#include <thread>

namespace heddle {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto timeout = std::chrono::seconds(2);
constexpr auto first_pause = std::chrono::milliseconds(200);

}  // namespace

Reachability::Reachability(SideChannel const& channel)
    : channel_(channel), heard_(static_cast<std::size_t>(channel.size())) {
  int const others = channel.size() - 1;
  int const count = std::min(others, max_asked);
  for (int number = 0; number < count; ++number) {
    auto const distance = 1 + static_cast<int>(std::int64_t{number} * others / count);
    asked_.push_back((channel.rank() + distance) % channel.size());
  }
}

std::vector<int> Reachability::ask() const {
  auto const end = Clock::now() + timeout;
  auto next_question = Clock::now();
  auto pause = first_pause;
  std::vector<int> silent;
  do {
    silent.clear();
    std::ranges::copy_if(asked_, std::back_inserter(silent),
                         [this](int rank) { return !heard_[static_cast<std::size_t>(rank)].load(); });
    if (!silent.empty() && Clock::now() >= next_question) {
      next_question = Clock::now() + pause;
      pause *= 2;  // ranks that are slow to answer are not asked faster than they can
      for (int const rank : silent) {
        channel_.send(rank, SideChannel::Kind::question);
      }
    }
    if (!silent.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } while (!silent.empty() && Clock::now() < end);
  return silent;
}

void Reachability::probe(Communicator const& world) {
  std::vector<int> silent = ask();
  if (any_of(world, !silent.empty())) {
    silent = ask();  // a busy rank may have come here only now
  }
  std::set<std::pair<std::string, std::string>> closed;
  auto const lists = gather_lists<int>(world, silent);
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    for (int const other : lists[rank]) {
      auto const hosts = std::minmax(channel_.host(static_cast<int>(rank)), channel_.host(other));
      closed.emplace(hosts.first, hosts.second);
    }
  }
  closed_.assign(closed.begin(), closed.end());
  std::vector<std::string> names;
  for (auto const& [one, other] : closed_) {
    names.push_back(one == other ? "within " + one : one + " and " + other);
  }
  constexpr std::size_t shown = 8;
  if (names.size() > shown) {
    names[shown] = fmt::format("{} other pairs", names.size() - shown);
    names.resize(shown + 1);
  }
  text_ = fmt::format("{}", fmt::join(names, ", "));
  known_.store(true);
}

bool Reachability::reachable(int rank) const {
  auto const hosts = std::minmax(channel_.host(channel_.rank()), channel_.host(rank));
  bool const closed = std::ranges::find(closed_, std::pair(hosts.first, hosts.second)) != closed_.end();
  return rank == channel_.rank() || !closed || heard_[static_cast<std::size_t>(rank)].load();
}

}  // namespace heddle
