#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/parameters/schedules.hpp>
#include <numbers>

namespace heddle {

void ScheduleRegistry::add(std::string name, Schedule schedule) {
  std::string_view const lack = name.empty() ? "name" : !schedule ? "function" : "";
  insert("schedule", lack, {{std::move(name)}, std::move(schedule)});
}

Schedule const& ScheduleRegistry::of(OptimizerConfig const& optimizer) const {
  if (Entry const* const entry = find(optimizer.schedule)) {
    return entry->schedule;
  }
  throw ConfigError("{} = \"{}\" is not a schedule; {}", optimizer.places.of("schedule"), optimizer.schedule,
                    nearest_or_all(optimizer.schedule, names(), "a schedule of a plug-in"));
}

double ScheduleRegistry::learning_rate(OptimizerConfig const& optimizer, std::int64_t step, std::int64_t total_steps,
                                       std::int64_t plateaus) const {
  double const peak = optimizer.learning_rate * std::pow(optimizer.plateau_factor, static_cast<double>(plateaus));
  auto const warmup = static_cast<double>(std::max<std::int64_t>(optimizer.warmup_steps, 1));
  double const update = static_cast<double>(step) + 1;
  if (step < optimizer.warmup_steps) {
    return peak * update / warmup;
  }
  auto const decay_steps = static_cast<double>(std::max<std::int64_t>(total_steps - optimizer.warmup_steps, 1));
  double const progress = std::min((update - static_cast<double>(optimizer.warmup_steps)) / decay_steps, 1.0);
  double const factor = of(optimizer)({update, warmup, progress});
  if (!(factor >= 0 && std::isfinite(factor))) {
    throw Error("the schedule '{}' gives update {} the factor {} of the learning rate; expected a number of at least 0",
                optimizer.schedule, step + 1, factor);
  }
  return peak * factor;
}

void register_schedules(ScheduleRegistry& registry) {
  registry.add("inverse_sqrt", [](ScheduledUpdate const& at) { return std::sqrt(at.warmup / at.number); });
  registry.add("cosine",
               [](ScheduledUpdate const& at) { return 0.5 * (1 + std::cos(std::numbers::pi * at.progress)); });
  registry.add("linear", [](ScheduledUpdate const& at) { return 1 - at.progress; });
  registry.add("constant", [](ScheduledUpdate const&) { return 1.0; });
}

}  // namespace heddle
