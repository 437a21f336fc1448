#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/base/named_registry.hpp>
#include <heddle/core/config/optimizer_config.hpp>
#include <heddle/core/operations/update.hpp>
#include <string>
#include <vector>

namespace heddle {

/// An update after the warm-up, of which a schedule gives the learning rate.
struct ScheduledUpdate {
  double number = 1;      ///< 1 for the first update of the run
  double warmup = 1;      ///< optimizer.warmup_steps, at least 1
  double progress = 0;    ///< grows from 0 at the end of the warm-up to 1 at the last update, and stays there
  double steps = 1;       ///< train.steps
  RuleOptions options{};  ///< the values of ScheduleEntry::options, in their order
};

/// The factor of optimizer.learning_rate: a pure function, so that a resumed run continues unchanged.
using Schedule = std::function<double(ScheduledUpdate const&)>;

struct ScheduleEntry : NamedEntry {
  Schedule schedule;
  std::vector<RuleOption> options = {};  ///< keys of [optimizer]
  bool warms_up = false;                 ///< it gives the rates of the warm-up, too, in which progress is 0
};

/// Schedules by the names that optimizer.schedule may have.
class ScheduleRegistry : public NamedRegistry<ScheduleEntry> {
 public:
  /// Throws ConfigError if the name is taken or empty, or if there is no function.
  void add(std::string name, Schedule schedule, std::vector<RuleOption> options = {});
  void add(ScheduleEntry entry);
  /// The configuration's schedule. Throws ConfigError with the place if it is not registered.
  ScheduleEntry const& of(OptimizerConfig const& optimizer) const;
  /// The learning rate of update `step` (0 for the first) of `total_steps`. It grows linearly through the warm-up,
  /// whose last update has optimizer.learning_rate, and then follows the schedule; it is multiplied by
  /// optimizer.plateau_factor for each of the `plateaus` so far, and grows again from 0 in the optimizer.rewarm_steps
  /// updates after optimizer.rewarm_at. Throws Error where the schedule gives a factor below
  /// 0, or none.
  double learning_rate(OptimizerConfig const& optimizer, std::int64_t step, std::int64_t total_steps,
                       std::int64_t plateaus = 0) const;
};

void register_schedules(ScheduleRegistry& registry);

}  // namespace heddle
