#include "timed_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <heddle/core/tensor/execution.hpp>

namespace heddle {

namespace {

constexpr int min_rounds = 3;
constexpr int max_rounds = 20;
constexpr double enough_seconds = 0.2;  ///< of each implementation, after the fewest rounds
constexpr double max_seconds = 1;       ///< of all together, after which no round begins

}  // namespace

TimesByName TimedProblem::total() const {
  TimesByName total = calls.empty() ? TimesByName() : calls.front().seconds;
  for (auto& [name, seconds] : total) {
    seconds = 0;
  }
  for (TimedCall const& call : calls) {
    std::erase_if(total, [&](auto const& item) { return !call.seconds.contains(item.first); });
    for (auto& [name, seconds] : total) {
      seconds += call.count * call.seconds.at(name);
    }
  }
  return total;
}

std::string TimedProblem::fastest() const {
  TimesByName const times = total();
  std::vector<std::string> names{by_speed};
  for (auto const& [name, seconds] : times) {
    names.push_back(name);
  }
  return measured_choice(times, names);
}

void KernelTimer::observe(Execution& execution, KernelCall const& call) {
  TimedProblem& problem = problems_[std::string(call.operation)][std::string(call.key)];
  problem.by_speed = call.by_speed;
  std::string const name =
      fmt::format("{}{}{}, {}", call.direction, call.variant.empty() ? "" : " ", call.variant, call.extents);
  auto& calls = problem.calls;
  auto known = std::find_if(calls.begin(), calls.end(), [&](TimedCall const& old) { return old.name == name; });
  if (known == calls.end()) {
    known = calls.insert(known, {name, call.cost, 0, measure(execution, call)});
  }
  known->count += 1;
  call.make();
}

/// Times the implementations in turn, so that other work of the machine affects all alike.
TimesByName KernelTimer::measure(Execution& execution, KernelCall const& call) const {
  using Clock = std::chrono::steady_clock;
  auto ways = call.ways();
  std::erase_if(ways, [&](auto const& each) { return !all_ && each.speed <= 0 && each.name != call.by_speed; });
  TimesByName min;
  double elapsed = 0;
  auto const enough = enough_seconds * static_cast<double>(ways.size());
  for (int round = 0; elapsed < max_seconds && (round < min_rounds || (round < max_rounds && elapsed < enough));
       ++round) {
    for (KernelCall::Way const& way : ways) {
      execution.space.fence();
      auto const begin = Clock::now();
      way.make();
      execution.space.fence();
      double const seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      double& best = min.try_emplace(way.name, seconds).first->second;
      best = std::min(best, seconds);
      elapsed += seconds;
    }
  }
  return min;
}

}  // namespace heddle
