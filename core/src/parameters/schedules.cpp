#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/parameters/schedules.hpp>
#include <numbers>
#include <tuple>
#include <utility>

namespace heddle {

namespace {

RuleOption number_option(std::string name, double value, std::string meaning) {
  return {OptionDescription::number(std::move(name), std::move(meaning)), value};
}

RuleOption step_count(std::string name, double value, std::string meaning) {
  RuleOption option = number_option(std::move(name), value, std::move(meaning));
  option.description.type = OptionDescription::Type::integer;
  return option;
}

RuleOption min_factor() {
  return RuleOption::fraction("min_factor", 0, "the part of the rate that the fall leaves; default: 0");
}

/// From 1 to 0 in half a period of the cosine.
double cosine_fall(double progress) {
  return 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

/// The fall from 1 to 0, in the part of the rate that falls.
double above(double min_factor, double fall) {
  return min_factor + (1 - min_factor) * fall;
}

/// Constant up to the run's last updates (warmup-stable-decay: Hu et al. 2024), in which it falls by the power of their
/// progress: 1 is linear, 0.5 the "1 - sqrt" of Hägele et al. 2024.
double stable_decay(ScheduledUpdate const& at) {
  auto const [decay_steps, power, min_factor] = std::tuple(at.options[0], at.options[1], at.options[2]);
  constexpr double usual_share = 0.2;
  double const after_warmup = std::max(at.steps - at.warmup, 1.0);
  double const falling = std::clamp(decay_steps > 0 ? decay_steps : usual_share * at.steps, 1.0, after_warmup);
  double const progress = std::clamp((at.number - (at.steps - falling)) / falling, 0.0, 1.0);
  return above(min_factor, 1 - std::pow(progress, power));
}

/// One cycle (Smith and Topin 2017) as torch.optim.lr_scheduler.OneCycleLR has it: half a period of the cosine up
/// through the warm-up, and another down to less than it began with.
double one_cycle(ScheduledUpdate const& at) {
  double const first = 1 / at.options[0];
  double const last = first / at.options[1];
  if (at.number < at.warmup) {
    return first + (1 - first) * (1 - cosine_fall((at.number - 1) / (at.warmup - 1)));
  }
  return above(last, cosine_fall(at.progress));
}

double fall_in_steps(ScheduledUpdate const& at) {
  double const after_warmup = std::max(at.number - at.warmup - 1, 0.0);
  return std::pow(at.options[1], std::floor(after_warmup / at.options[0]));
}

}  // namespace

void ScheduleRegistry::add(std::string name, Schedule schedule, std::vector<RuleOption> options) {
  add({{std::move(name)}, std::move(schedule), std::move(options)});
}

void ScheduleRegistry::add(ScheduleEntry entry) {
  std::string_view const lack = entry.name.empty() ? "name" : !entry.schedule ? "function" : "";
  if (entry.options.size() > std::tuple_size_v<RuleOptions>) {
    throw ConfigError("the schedule '{}' has {} options; expected at most {}", entry.name, entry.options.size(),
                      std::tuple_size_v<RuleOptions>);
  }
  insert("schedule", lack, std::move(entry));
}

ScheduleEntry const& ScheduleRegistry::of(OptimizerConfig const& optimizer) const {
  if (Entry const* const entry = find(optimizer.schedule)) {
    return *entry;
  }
  throw ConfigError("{} = \"{}\" is not a schedule; {}", optimizer.places.of("schedule"), optimizer.schedule,
                    nearest_or_all(optimizer.schedule, names(), "a schedule of a plug-in"));
}

double ScheduleRegistry::learning_rate(OptimizerConfig const& optimizer, std::int64_t step, std::int64_t total_steps,
                                       std::int64_t plateaus) const {
  double peak = optimizer.learning_rate * std::pow(optimizer.plateau_factor, static_cast<double>(plateaus));
  double const update = static_cast<double>(step) + 1;
  if (std::int64_t const again = step - optimizer.rewarm_at; again >= 0 && again < optimizer.rewarm_steps) {
    peak *= static_cast<double>(again + 1) / static_cast<double>(optimizer.rewarm_steps);
  }
  auto const warmup = static_cast<double>(std::max<std::int64_t>(optimizer.warmup_steps, 1));
  ScheduleEntry const& schedule = of(optimizer);
  if (step < optimizer.warmup_steps && !schedule.warms_up) {
    return peak * update / warmup;
  }
  auto const after_warmup = static_cast<double>(std::max<std::int64_t>(total_steps - optimizer.warmup_steps, 1));
  double const progress = std::clamp((update - static_cast<double>(optimizer.warmup_steps)) / after_warmup, 0.0, 1.0);
  ScheduledUpdate at{update, warmup, progress, static_cast<double>(total_steps)};
  for (std::size_t index = 0; index < schedule.options.size(); ++index) {
    auto const& [description, otherwise] = schedule.options[index];
    at.options.at(index) = LayerOptions(optimizer.options, "optimizer").number(description.name, otherwise);
  }
  double const factor = schedule.schedule(at);
  if (!(factor >= 0 && std::isfinite(factor))) {
    throw Error("the schedule '{}' gives update {} the factor {} of the learning rate; expected a number of at least 0",
                optimizer.schedule, step + 1, factor);
  }
  return peak * factor;
}

void register_schedules(ScheduleRegistry& registry) {
  registry.add("inverse_sqrt", [](ScheduledUpdate const& at) { return std::sqrt(at.warmup / at.number); });
  registry.add("cosine", [](ScheduledUpdate const& at) { return above(at.options[0], cosine_fall(at.progress)); },
               {min_factor()});
  registry.add("linear", [](ScheduledUpdate const& at) { return above(at.options[0], 1 - at.progress); },
               {min_factor()});
  registry.add("constant", [](ScheduledUpdate const&) { return 1.0; });
  registry.add("polynomial",
               [](ScheduledUpdate const& at) { return above(at.options[1], std::pow(1 - at.progress, at.options[0])); },
               {number_option("power", 1, "of the part of the run that is left; default: 1"), min_factor()});
  RuleOption end_factor = number_option("end_factor", 0.1, "the last rate is the peak times this; default: 0.1");
  end_factor.description.above_min = true;
  registry.add("exponential", [](ScheduledUpdate const& at) { return std::pow(at.options[0], at.progress); },
               {end_factor});
  registry.add(
      "wsd", stable_decay,
      {step_count("decay_steps", 0, "the last updates, in which the rate falls; default: 0, a fifth of the run"),
       number_option("power", 1, "of the progress in them: 1 is linear, 0.5 falls early; default: 1"), min_factor()});
  RuleOption start =
      number_option("start_divisor", 25, "the first rate is the peak's part 1 / start_divisor; default: 25");
  RuleOption end =
      number_option("end_divisor", 1e4, "the last rate is the first one's part 1 / end_divisor; default: 1e4");
  start.description.min = 1;
  end.description.min = 1;
  registry.add({{"one_cycle"}, one_cycle, {start, end}, true});
  RuleOption every = step_count("fall_steps", 1000, "updates between two falls; default: 1000");
  every.description.min = 1;
  registry.add("step", fall_in_steps, {every, RuleOption::fraction("fall_factor", 0.5, "of each fall; default: 0.5")});
}

}  // namespace heddle
