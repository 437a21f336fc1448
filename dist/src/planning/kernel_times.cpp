#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/dist/planning/kernel_times.hpp>
#include <utility>

namespace heddle {

namespace {

/// The quantity that a kind's times grow with.
double size_of(Cost const& cost) {
  return cost.operations > 0 ? cost.operations : std::max(cost.bytes, 1.0);
}

TimedWork scaled(TimedWork const& work, Cost const& cost) {
  double const factor = size_of(cost) / size_of(work.cost);
  TimedWork result = work;
  result.cost = cost;
  result.seconds *= factor;
  result.first_seconds *= factor;
  return result;
}

TimedWork between(TimedWork const& low, TimedWork const& high, Cost const& cost) {
  double const share = (size_of(cost) - size_of(low.cost)) / (size_of(high.cost) - size_of(low.cost));
  auto const at = [&](double from, double to) { return from + share * (to - from); };
  return {.cost = cost,
          .seconds = at(low.seconds, high.seconds),
          .first_seconds = at(low.first_seconds, high.first_seconds),
          .spread = at(low.spread, high.spread)};
}

TimedWork interpolated(std::vector<TimedWork> const& times, Cost const& cost) {
  auto const above =
      std::ranges::find_if(times, [&](TimedWork const& work) { return size_of(work.cost) >= size_of(cost); });
  if (above == times.begin()) {
    return scaled(times.front(), cost);
  }
  return above == times.end() ? scaled(times.back(), cost) : between(*(above - 1), *above, cost);
}

/// The kind without the problem's sizes: "gemm forward, float32".
std::string_view family_of(std::string_view kind) {
  return kind.substr(0, kind.find(';'));
}

constexpr double max_load = 0.5;
constexpr double max_age = 30.0 * 24 * 3600;

bool under_load(TimedWork const& work) {
  return work.load > max_load;
}

}  // namespace

std::string untrusted_reason(TimedWork const& work, double now) {
  if (work.measured_at <= 0) {
    return "without a date";
  }
  if (under_load(work)) {
    return "taken on a busy machine";
  }
  return now - work.measured_at > max_age ? "older than a month" : "";
}

std::string kind_of(KernelCall const& call) {
  return fmt::format("{} {}{}{}, {}; {}", call.operation, call.direction, call.variant.empty() ? "" : " ", call.variant,
                     name_of(call.dtype), call.key);
}

void KernelTimes::add(std::string const& kind, TimedWork const& work) {
  bool const replaceable = forgotten_.erase({kind, size_of(work.cost)}) > 0;
  ++revision_;
  auto& times = times_[kind];
  auto const place =
      std::ranges::find_if(times, [&](TimedWork const& known) { return size_of(known.cost) >= size_of(work.cost); });
  if (place != times.end() && size_of(place->cost) == size_of(work.cost)) {
    if (under_load(work) && !under_load(*place) && !replaceable) {
      return;  // a layout is measured as a whole, also its calls whose times are known
    }
    TimedWork const old = std::exchange(*place, work);
    if (under_load(old) && under_load(work)) {
      place->seconds = std::min(old.seconds, work.seconds);
      place->first_seconds = std::min(old.first_seconds, work.first_seconds);
    }
  } else {
    times.insert(place, work);
  }
}

void KernelTimes::forget(double now, bool all) {
  for (auto const& [kind, works] : times_) {
    for (TimedWork const& work : works) {
      if (all || !untrusted_reason(work, now).empty()) {
        forgotten_.insert({kind, size_of(work.cost)});
      }
    }
  }
}

bool KernelTimes::knows(std::string const& kind, Cost const& cost, bool exactly) const {
  constexpr double near = 1.1;
  auto const found = times_.find(kind);
  if (found == times_.end()) {
    return false;
  }
  bool below = false;
  bool above = false;
  for (TimedWork const& work : found->second) {
    if (forgotten_.contains({kind, size_of(work.cost)})) {
      continue;
    }
    double const factor = size_of(cost) / size_of(work.cost);
    if (factor < near && factor > 1 / near) {
      return true;
    }
    (factor > 1 ? below : above) = true;
  }
  return below && above && !exactly;
}

std::optional<TimedWork> KernelTimes::time(std::string const& kind, Cost const& cost) const {
  if (auto const found = times_.find(kind); found != times_.end()) {
    return interpolated(found->second, cost);
  }
  // The measured call of the family whose size is nearest.
  std::optional<TimedWork> nearest;
  auto const distance = [&](TimedWork const& work) { return std::abs(std::log(size_of(cost) / size_of(work.cost))); };
  std::string_view const family = family_of(kind);
  for (auto known = times_.lower_bound(std::string(family)); known != times_.end(); ++known) {
    if (family_of(known->first) != family) {
      break;
    }
    for (TimedWork const& work : known->second) {
      if (!nearest || distance(work) < distance(*nearest)) {
        nearest = work;
      }
    }
  }
  return nearest ? std::optional(scaled(*nearest, cost)) : std::nullopt;
}

}  // namespace heddle
