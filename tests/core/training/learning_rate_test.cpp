#include <heddle/core/parameters/schedules.hpp>

#include "test.hpp"

namespace heddle {
namespace {

OptimizerConfig optimizer(std::string const& schedule, double peak, std::int64_t warmup) {
  OptimizerConfig config;
  config.schedule = schedule;
  config.learning_rate = peak;
  config.warmup_steps = warmup;
  return config;
}

ScheduleRegistry built_in_schedules() {
  ScheduleRegistry schedules;
  register_schedules(schedules);
  return schedules;
}

double learning_rate(OptimizerConfig const& optimizer, std::int64_t step, std::int64_t total_steps) {
  return built_in_schedules().learning_rate(optimizer, step, total_steps);
}

TEST(Schedule, InverseSquareRootPeaksAtTheEndOfTheWarmUp) {
  OptimizerConfig const config = optimizer("inverse_sqrt", 0.005, 2000);
  EXPECT_DOUBLE_EQ(learning_rate(config, 0, 8000), 0.0000025);
  EXPECT_DOUBLE_EQ(learning_rate(config, 999, 8000), 0.0025);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1999, 8000), 0.005);
  EXPECT_DOUBLE_EQ(learning_rate(config, 7999, 8000), 0.0025);
  EXPECT_LT(learning_rate(config, 2000, 8000), 0.005);
  EXPECT_GT(learning_rate(config, 2000, 8000), 0.00499);
}

// Vaswani et al. 2017, equation 3: d_model^-0.5 * min(step^-0.5, step * warmup^-1.5).
TEST(Schedule, InverseSquareRootIsThePapersForItsPeak) {
  double const peak = 1 / std::sqrt(512.0 * 4000.0);
  OptimizerConfig const config = optimizer("inverse_sqrt", peak, 4000);
  for (std::int64_t const number : {1, 17, 3999, 4000, 4001, 100000}) {
    auto const update = static_cast<double>(number);
    double const paper = std::min(1 / std::sqrt(update), update * std::pow(4000.0, -1.5)) / std::sqrt(512.0);
    EXPECT_NEAR(learning_rate(config, number - 1, 100000), paper, 1e-15) << number;
  }
}

TEST(Schedule, CosineAndLinearReachZeroAfterTheLastUpdate) {
  OptimizerConfig const linear = optimizer("linear", 1.0, 20);
  EXPECT_DOUBLE_EQ(learning_rate(linear, 9, 120), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(linear, 19, 120), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(linear, 44, 120), 0.75);
  EXPECT_NEAR(learning_rate(linear, 118, 120), 0.01, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate(linear, 119, 120), 0.0);
  EXPECT_DOUBLE_EQ(learning_rate(linear, 500, 120), 0.0);

  OptimizerConfig const cosine = optimizer("cosine", 1.0, 20);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 19, 120), 1.0);
  EXPECT_NEAR(learning_rate(cosine, 44, 120), 0.5 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(learning_rate(cosine, 69, 120), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(cosine, 119, 120), 0.0, 1e-12);
}

double rate_with(OptimizerConfig config, std::map<std::string, double> const& options, std::int64_t step,
                 std::int64_t total_steps) {
  for (auto const& [name, value] : options) {
    config.options[name] = {value, "", "optimizer." + name};
  }
  return learning_rate(config, step, total_steps);
}

TEST(Schedule, AFallMayLeaveAPartOfTheRate) {
  for (std::string const name : {"cosine", "linear", "polynomial", "wsd"}) {
    EXPECT_DOUBLE_EQ(rate_with(optimizer(name, 2.0, 20), {{"min_factor", 0.1}}, 19, 120), 2.0) << name;
    EXPECT_DOUBLE_EQ(rate_with(optimizer(name, 2.0, 20), {{"min_factor", 0.1}}, 119, 120), 0.2) << name;
  }
}

TEST(Schedule, PolynomialIsAPowerOfWhatIsLeft) {
  EXPECT_DOUBLE_EQ(rate_with(optimizer("polynomial", 1.0, 20), {{"power", 3}}, 69, 120), 0.125);
}

TEST(Schedule, StableDecayFallsAtTheEndOnly) {
  OptimizerConfig const config = optimizer("wsd", 1.0, 100);
  EXPECT_DOUBLE_EQ(learning_rate(config, 49, 1000), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 799, 1000), 1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 899, 1000), 0.5) << "the last fifth falls";
  EXPECT_DOUBLE_EQ(learning_rate(config, 999, 1000), 0);
  EXPECT_DOUBLE_EQ(rate_with(config, {{"decay_steps", 400}}, 699, 1000), 0.75);
  EXPECT_DOUBLE_EQ(rate_with(config, {{"decay_steps", 400}, {"power", 0.5}}, 699, 1000), 0.5) << "1 - sqrt";
  EXPECT_DOUBLE_EQ(rate_with(config, {{"decay_steps", 5000}}, 549, 1000), 0.5) << "all after the warm-up falls";
}

TEST(Schedule, ExponentialHasEqualFactors) {
  OptimizerConfig const config = optimizer("exponential", 0.5, 20);
  EXPECT_DOUBLE_EQ(learning_rate(config, 69, 120), 0.5 * std::sqrt(0.1));
  EXPECT_NEAR(rate_with(config, {{"end_factor", 1e4}}, 94, 120), 500, 1e-9) << "it may grow, as find-rate lets it";
}

TEST(Schedule, StepFallsAtEqualIntervals) {
  OptimizerConfig const config = optimizer("step", 1.0, 10);
  std::map<std::string, double> const options{{"fall_steps", 50}, {"fall_factor", 0.1}};
  for (auto const& [step, expected] : {std::pair{9, 1.0}, {59, 1.0}, {60, 0.1}, {109, 0.1}, {110, 0.01}}) {
    EXPECT_NEAR(rate_with(config, options, step, 1000), expected, 1e-15) << step;
  }
}

// torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=100, pct_start=0.3, cycle_momentum=False), PyTorch 2.
TEST(Schedule, OneCycleIsTorchs) {
  OptimizerConfig const config = optimizer("one_cycle", 1.0, 30);
  for (auto const& [step, expected] : {std::pair{0, 0.040000000000000036},
                                       {10, 0.29516394846410077},
                                       {29, 1.0},
                                       {30, 0.9994965352845243},
                                       {64, 0.500002},
                                       {98, 0.0005074647154757879},
                                       {99, 4e-06}}) {
    EXPECT_NEAR(learning_rate(config, step, 100), expected, 1e-14) << step;
  }
}

TEST(Schedule, TheRateGrowsAgainAfterAStep) {
  OptimizerConfig config = optimizer("constant", 0.1, 4);
  config.rewarm_at = 100;
  config.rewarm_steps = 10;
  EXPECT_DOUBLE_EQ(learning_rate(config, 99, 200), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 100, 200), 0.01);
  EXPECT_DOUBLE_EQ(learning_rate(config, 108, 200), 0.09);
  EXPECT_DOUBLE_EQ(learning_rate(config, 109, 200), 0.1);
}

TEST(Schedule, ConstantStaysAfterItsWarmUp) {
  OptimizerConfig const config = optimizer("constant", 0.1, 4);
  EXPECT_DOUBLE_EQ(learning_rate(config, 0, 10), 0.025);
  EXPECT_DOUBLE_EQ(learning_rate(config, 3, 10), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 9, 10), 0.1);
}

TEST(Schedule, NoWarmUpStartsAtThePeak) {
  EXPECT_DOUBLE_EQ(learning_rate(optimizer("constant", 0.1, 0), 0, 10), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer("inverse_sqrt", 0.1, 0), 0, 10), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer("inverse_sqrt", 0.1, 0), 3, 10), 0.05);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer("linear", 0.1, 0), 4, 10), 0.05);
}

TEST(Schedule, APluginBringsOneByName) {
  ScheduleRegistry schedules = built_in_schedules();
  schedules.set_origin("steps.so");
  schedules.add("halves", [](ScheduledUpdate const& at) { return at.progress < 0.5 ? 1 : 0.5; });
  OptimizerConfig const config = optimizer("halves", 0.1, 10);
  EXPECT_DOUBLE_EQ(schedules.learning_rate(config, 4, 110), 0.05);
  EXPECT_DOUBLE_EQ(schedules.learning_rate(config, 58, 110), 0.1);
  EXPECT_DOUBLE_EQ(schedules.learning_rate(config, 59, 110), 0.05);
  expect_config_error([&] { schedules.add("halves", [](ScheduledUpdate const&) { return 1.0; }); },
                      "'halves' is taken by steps.so");
  expect_config_error([&] { built_in_schedules().of(optimizer("cosin", 0.1, 10)); },
                      "optimizer.schedule = \"cosin\" is not a schedule; did you mean cosine?");
  schedules.add("falling", [](ScheduledUpdate const& at) { return 0.5 - at.progress; });
  expect_error([&] { schedules.learning_rate(optimizer("falling", 0.1, 10), 109, 110); },
               "gives update 110 the factor -0.5");
}

}  // namespace
}  // namespace heddle
