#include <heddle/core/training/optimizer.hpp>

#include "golden_file.hpp"
#include "golden_model.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

constexpr double rate = 0.01;
// Adam's options, unless they are set.
constexpr double beta1 = 0.9;
constexpr double beta2 = 0.98;
constexpr double epsilon = 1e-9;

class OptimizerTest : public testing::TestWithParam<DType> {
 protected:
  OptimizerTest() {
    parameters().declare({"matrix", {{3, 5}}, Initializer::zeros()});
    parameters().declare({"vector", {{7}}, Initializer::zeros()});
    bench_.allocate();
    reset();
  }

  /// Initial values and gradients.
  void reset() {
    set_golden_values(parameters());
    for (Parameter const& parameter : parameters().all()) {
      std::vector<double> gradient;
      for (std::int64_t index = 0; index < parameter.gradient.size(); ++index) {
        gradient.push_back(golden_value("gradient " + parameter.spec.name, index));
      }
      copy_from_doubles(parameter.gradient, gradient);
    }
  }

  ParameterSet& parameters() { return bench_.parameters(); }
  Parameter const& parameter(std::size_t index) { return parameters().all()[index]; }
  std::vector<double> values() { return heddle::values(parameters().values()); }
  double gradient_norm() {
    double sum = 0;
    for (double const gradient : heddle::values(parameters().gradients())) {
      sum += gradient * gradient;
    }
    return std::sqrt(sum);
  }
  double tolerance() const { return GetParam() == DType::float64 ? 1e-12 : 1e-6; }

  TestBench bench_{ModelConfig(), GetParam(), GetParam() == DType::float64 ? reference_kernels() : KernelChoices()};
};

TEST_P(OptimizerTest, TheFirstStepMovesByTheLearningRate) {
  // After bias correction the moments are g and g², so that the step is the gradient's sign, except for epsilon.
  OptimizerConfig const config;
  Optimizer const optimizer = bench_.optimizer(config);
  auto const before = heddle::values(parameter(0).value);
  auto const gradient = heddle::values(parameter(0).gradient);
  double const norm = bench_.update(optimizer, rate, 1);
  EXPECT_NEAR(norm, gradient_norm(), tolerance() * norm);
  std::vector<double> expected;
  for (std::size_t index = 0; index < before.size(); ++index) {
    expected.push_back(before[index] - rate * gradient[index] / (std::abs(gradient[index]) + epsilon));
  }
  EXPECT_LE(relative_error(heddle::values(parameter(0).value), expected), tolerance());
}

TEST_P(OptimizerTest, DecayIsDecoupledInAdamW) {
  OptimizerConfig config;
  config.name = "adamw";
  config.weight_decay = 0.5;
  bench_.zero_gradients();
  auto expected = values();
  for (double& value : expected) {
    value *= 1 - rate * config.weight_decay;
  }
  Optimizer const optimizer = bench_.optimizer(config);
  bench_.update(optimizer, rate, 1);
  EXPECT_LE(relative_error(values(), expected), tolerance());
}

TEST_P(OptimizerTest, ClippingScalesTheGradientToTheNorm) {
  OptimizerConfig config;
  config.clip_norm = 0.25;
  Optimizer const optimizer = bench_.optimizer(config);
  double const norm = gradient_norm();
  ASSERT_GT(norm, config.clip_norm);
  EXPECT_NEAR(bench_.update(optimizer, rate, 1), norm, tolerance() * norm) << "the norm before clipping";
  auto expected = heddle::values(parameters().gradients());
  for (double& moment : expected) {
    moment *= (1 - beta1) * config.clip_norm / norm;
  }
  EXPECT_LE(relative_error(heddle::values(optimizer.state().at("adam.first_moment")), expected), tolerance());
}

TEST_P(OptimizerTest, NoClippingBelowTheNorm) {
  OptimizerConfig config;
  config.clip_norm = 2 * gradient_norm();
  Optimizer const optimizer = bench_.optimizer(config);
  bench_.update(optimizer, rate, 1);
  auto expected = heddle::values(parameters().gradients());
  for (double& moment : expected) {
    moment *= 1 - beta1;
  }
  EXPECT_LE(relative_error(heddle::values(optimizer.state().at("adam.first_moment")), expected), tolerance());
}

/// Adam by its formulas, in float64, for one element.
struct OracleElement {
  double value = 0;
  double first = 0;
  double second = 0;

  void update(OptimizerConfig const& config, UpdateRule const& rule, double gradient, int step) {
    bool const decoupled = config.name == "adamw";
    double const learning_rate = rate * rule.learning_rate_factor;
    double const joined = gradient + (decoupled ? 0 : rule.weight_decay * value);
    first = beta1 * first + (1 - beta1) * joined;
    second = beta2 * second + (1 - beta2) * joined * joined;
    double const mean = first / (1 - std::pow(beta1, step));
    double const deviation = std::sqrt(second / (1 - std::pow(beta2, step)));
    double const decay = decoupled ? rule.weight_decay * value : 0;
    value -= learning_rate * (mean / (deviation + epsilon) + decay);
  }
};

TEST_P(OptimizerTest, GroupsFollowTheirOwnRules) {
  for (std::string const name : {"adam", "adamw"}) {
    for (bool const frozen : {false, true}) {
      OptimizerConfig config;
      config.name = name;
      config.weight_decay = 0.3;
      config.groups = {{"rows", {"mat*"}, {.learning_rate_factor = 0.25, .weight_decay = 0.1, .frozen = frozen}}};
      OptimizerTest::reset();
      Optimizer const optimizer = bench_.optimizer(config);
      double squares = 0;
      std::vector<std::vector<OracleElement>> oracle;
      for (Parameter const& each : parameters().all()) {
        oracle.emplace_back();
        for (double const value : heddle::values(each.value)) {
          oracle.back().push_back({value});
        }
        for (double const gradient : heddle::values(each.gradient)) {
          squares += each.rule.frozen ? 0 : gradient * gradient;
        }
      }
      for (int step = 1; step <= 3; ++step) {
        EXPECT_NEAR(bench_.update(optimizer, rate, step), std::sqrt(squares), tolerance() * squares);
        for (std::size_t index = 0; index < oracle.size(); ++index) {
          Parameter const& each = parameter(index);
          UpdateRule const rule = index == 0 ? config.groups[0].rule : UpdateRule{.weight_decay = 0.3};
          auto const gradient = heddle::values(each.gradient);
          std::vector<double> expected;
          for (std::size_t element = 0; element < gradient.size(); ++element) {
            if (!rule.frozen) {
              oracle[index][element].update(config, rule, gradient[element], step);
            }
            expected.push_back(oracle[index][element].value);
          }
          EXPECT_LE(relative_error(heddle::values(each.value), expected), tolerance())
              << each.spec.name << (frozen ? ", frozen" : "") << ", step " << step;
        }
      }
    }
  }
}

// torch.optim does so with two groups of parameters of which one gets its first gradient in the third step.
TEST_P(OptimizerTest, AGroupThatIsUnfrozenStartsWithItsFirstUpdate) {
  constexpr int unfrozen = 2;
  for (std::string const name : {"adam", "adamw"}) {
    OptimizerConfig config;
    config.name = name;
    config.weight_decay = 0.3;
    config.groups = {{"late", {"mat*"}, {.learning_rate_factor = 0.25, .weight_decay = 0.1, .frozen_until = unfrozen}}};
    OptimizerTest::reset();
    Optimizer optimizer = bench_.optimizer(config);
    EXPECT_TRUE(parameter(0).gradient.empty());
    std::vector<std::vector<OracleElement>> oracle;
    for (Parameter const& each : parameters().all()) {
      oracle.emplace_back();
      for (double const value : heddle::values(each.value)) {
        oracle.back().push_back({value});
      }
    }
    for (int step = 1; step <= 5; ++step) {
      unfreeze(parameters(), bench_.registries().kernels, step - 1);
      optimizer.regroup();
      bench_.update(optimizer, rate, step);
      for (std::size_t index = 0; index < oracle.size(); ++index) {
        Parameter const& each = parameter(index);
        UpdateRule const rule = index == 0 ? config.groups[0].rule : UpdateRule{.weight_decay = 0.3};
        std::vector<double> expected;
        for (std::size_t element = 0; element < oracle[index].size(); ++element) {
          if (step > rule.frozen_until) {
            double const gradient = golden_value("gradient " + each.spec.name, static_cast<std::int64_t>(element));
            oracle[index][element].update(config, rule, gradient, step - static_cast<int>(rule.frozen_until));
          }
          expected.push_back(oracle[index][element].value);
        }
        EXPECT_LE(relative_error(heddle::values(each.value), expected), tolerance())
            << name << ", " << each.spec.name << ", step " << step;
      }
    }
  }
}

TEST_P(OptimizerTest, AllGradientsAreSetToZeroIfNobodyReadsThem) {
  std::vector<double> gradients(static_cast<std::size_t>(parameters().gradient_size()));
  for (Parameter const& each : parameters().all()) {
    for (std::int64_t index = 0; index < each.local_shape.size(); ++index) {
      gradients[static_cast<std::size_t>(each.place.begin + index)] =
          static_cast<float>(golden_value("gradient", index));
    }
  }
  for (UpdateRule const& rule : {UpdateRule{.learning_rate_factor = 0.25}, UpdateRule{.frozen = true},
                                 UpdateRule{.frozen_until = 2}, UpdateRule{.zero_last_row = true}}) {
    OptimizerConfig config;
    config.groups = {{"rows", {"mat*"}, rule}};
    auto const update = [&](GradientsAfter after) {
      OptimizerTest::reset();
      copy_from_doubles(parameters().gradients(), gradients);
      Optimizer const optimizer = bench_.optimizer(config);
      optimizer.begin({.learning_rate = rate, .step = 1});
      optimizer.apply(bench_.execution(), {0, parameters().gradient_size()}, after);
      return values();
    };
    auto const expected = update(GradientsAfter::kept);
    EXPECT_EQ(heddle::values(parameters().gradients()), gradients);
    EXPECT_EQ(update(GradientsAfter::zero), expected);
    EXPECT_EQ(heddle::values(parameters().gradients()), std::vector<double>(gradients.size()));
  }
}

TEST_P(OptimizerTest, TheLastRowStaysZeroWhereAGroupSaysSo) {
  Optimizer const free = bench_.optimizer(OptimizerConfig());
  bench_.update(free, rate, 1);
  std::vector<double> expected = heddle::values(parameter(0).value);
  ASSERT_NE(expected.back(), 0);
  std::fill(expected.end() - 5, expected.end(), 0.0);
  OptimizerTest::reset();
  OptimizerConfig config;
  config.groups = {{"tables", {"mat*"}, {.zero_last_row = true}}};
  Optimizer const optimizer = bench_.optimizer(config);
  bench_.update(optimizer, rate, 1);
  EXPECT_EQ(heddle::values(parameter(0).value), expected);
}

TEST_P(OptimizerTest, ValuesMayStandForOtherNumbersThatAreTrained) {
  constexpr double scale = 0.25;
  constexpr double offset = 1;
  auto const changed = [](Tensor const& tensor, double factor, double added) {
    std::vector<double> values = heddle::values(tensor);
    for (double& value : values) {
      value = value * factor + added;
    }
    copy_from_doubles(tensor, values);
    return values;
  };
  for (char const* const rule : {"adam", "adamw", "sgd", "lion"}) {
    OptimizerConfig config{.name = rule, .weight_decay = 0.5};
    auto const update = [&] {
      Optimizer const optimizer = bench_.optimizer(config);
      optimizer.begin({.learning_rate = rate, .gradient_scale = 0.5, .step = 1});
      optimizer.apply(bench_.execution(), {0, parameters().gradient_size()});
    };
    OptimizerTest::reset();
    update();
    std::vector<double> const expected = changed(parameter(0).value, scale, offset);
    OptimizerTest::reset();
    changed(parameter(0).value, scale, offset);
    changed(parameter(0).gradient, 1 / scale, 0);
    config.groups = {{"rows",
                      {"mat*"},
                      {.options = {{"value_scale", {scale, "", ""}}, {"value_offset", {offset, "", ""}}},
                       .weight_decay = config.weight_decay}}};
    update();
    EXPECT_LE(relative_error(heddle::values(parameter(0).value), expected), tolerance()) << rule;
    double sums[2];
    for (double& sum : sums) {  // with the group, and without it
      Tensor const squares = Tensor::allocate(DType::float64, {1});
      copy_from_doubles(squares, {0.0});
      bench_.optimizer(config).add_sum_of_squares(bench_.execution(), {0, parameters().gradient_size()}, squares);
      sum = heddle::values(squares).front();
      config.groups.clear();
      changed(parameter(0).gradient, scale, 0);
    }
    EXPECT_NEAR(sums[0], sums[1], tolerance() * sums[0]);
  }
}

TEST_P(OptimizerTest, AGroupHasARuleOfItsOwn) {
  OptimizerConfig config;
  config.options["beta1"] = {0.5, "", "optimizer.beta1"};
  config.groups = {{"matrices", {"mat*"}, {.name = "sgd", .options = {{"momentum", {0.0, "", ""}}}}}};
  auto const before = heddle::values(parameter(0).value);
  auto const gradient = heddle::values(parameter(0).gradient);
  Optimizer const optimizer = bench_.optimizer(config);
  bench_.update(optimizer, rate, 1);
  std::vector<double> expected;
  for (std::size_t index = 0; index < before.size(); ++index) {
    expected.push_back(before[index] - rate * gradient[index]);
  }
  EXPECT_LE(relative_error(heddle::values(parameter(0).value), expected), tolerance());
  EXPECT_EQ(parameter(0).state, std::vector<std::string>{"sgd.momentum"});
  EXPECT_EQ(optimizer.state().at("sgd.momentum").size(), parameter(0).place.count());
  IndexRange const vector{parameter(1).place.begin, parameter(1).place.begin + 7};
  auto moments = heddle::values(parameter(1).gradient);
  for (double& moment : moments) {
    moment *= 0.5;
  }
  EXPECT_LE(relative_error(heddle::values(optimizer.state_in("adam.first_moment", vector)), moments), tolerance());
  EXPECT_THROW(optimizer.state_in("sgd.momentum", vector), Error);
  EXPECT_THROW(optimizer.state_in("adam.first_moment", {0, parameter(1).place.end}), Error);
}

TEST_P(OptimizerTest, StateThatBeginsInTheMiddleOfARunIsCorrectedAsAtItsStart) {
  OptimizerConfig config;
  config.options["beta2"] = {0.999, "", "optimizer.beta2"};
  auto const trajectory = [&](std::int64_t begin, std::int64_t state_begin) {
    OptimizerTest::reset();
    Optimizer optimizer = bench_.optimizer(config);
    parameters().find("matrix")->state_begin = state_begin;
    optimizer.regroup();
    std::vector<std::vector<double>> values;
    for (std::int64_t update = 1; update <= 5; ++update) {
      bench_.update(optimizer, rate, begin + update);
      values.push_back(heddle::values(parameter(0).value));
      values.push_back(heddle::values(parameter(1).value));
    }
    return values;
  };
  auto const from_start = trajectory(0, 0);
  auto const in_mid_run = trajectory(1000, 1000);
  OptimizerTest::reset();
  for (std::size_t index = 0; index < 2; ++index) {
    auto const gradient = heddle::values(parameter(index).gradient);
    auto expected = heddle::values(parameter(index).value);
    std::vector<double> first(expected.size());
    std::vector<double> second(expected.size());
    for (std::size_t update = 1; update <= 5; ++update) {
      // The vector's state has seen the run's first 1,000 updates, and is zero all the same.
      auto const seen = static_cast<double>(update) + (index == 0 ? 0 : 1000);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        first[i] = beta1 * first[i] + (1 - beta1) * gradient[i];
        second[i] = 0.999 * second[i] + 0.001 * gradient[i] * gradient[i];
        expected[i] -= rate * (first[i] / (1 - std::pow(beta1, seen))) /
                       (std::sqrt(second[i] / (1 - std::pow(0.999, seen))) + epsilon);
      }
      std::size_t const at = 2 * (update - 1) + index;
      EXPECT_LE(relative_error(in_mid_run[at], expected), tolerance()) << index << ", update " << update;
      EXPECT_EQ(in_mid_run[at] == from_start[at], index == 0) << index << ", update " << update;
    }
  }
}

TEST_P(OptimizerTest, AveragesFollowTheValues) {
  OptimizerConfig config;
  config.average = Average::ema;
  config.average_decay = 0.6;
  Optimizer const optimizer = bench_.optimizer(config);
  std::vector<double> average(values().size());
  for (std::int64_t step = 1; step <= 20; ++step) {
    bench_.update(optimizer, rate, step);
    double const kept = std::min(0.6, static_cast<double>(step - 1) / static_cast<double>(step + 8));
    std::vector<double> const newest = values();
    for (std::size_t i = 0; i < average.size(); ++i) {
      average[i] = kept * average[i] + (1 - kept) * newest[i];
    }
  }
  auto const kept_for = [&](Parameter const& parameter) {
    IndexRange const place{parameter.place.begin, parameter.place.begin + parameter.local_shape.size()};
    return heddle::values(optimizer.state_in("average", place));
  };
  for (Parameter const& parameter : parameters().all()) {
    auto const begin = average.begin() + parameter.place.begin;
    std::vector<double> const expected(begin, begin + parameter.local_shape.size());
    EXPECT_LE(relative_error(kept_for(parameter), expected), tolerance()) << parameter.spec.name;
  }
  auto const newest = values();
  IndexRange const all{0, parameters().gradient_size()};
  optimizer.swap_averages(bench_.execution(), all, 0);
  EXPECT_EQ(values(), newest) << "no update has made averages";
  optimizer.swap_averages(bench_.execution(), all, 20);
  EXPECT_EQ(heddle::values(parameter(0).value) == kept_for(parameter(0)), false);
  optimizer.swap_averages(bench_.execution(), all, 20);
  EXPECT_EQ(values(), newest);
}

TEST_P(OptimizerTest, TheLatestValuesAreAveraged) {
  OptimizerConfig config;
  config.average = Average::lawa;
  config.average_every = 2;
  config.average_count = 3;
  Optimizer const optimizer = bench_.optimizer(config);
  IndexRange const place{parameter(0).place.begin, parameter(0).place.begin + 15};
  std::vector<std::vector<double>> every = {{}};  // the values after each update
  auto const mean = [&](std::vector<std::size_t> const& updates) {
    std::vector<double> sum(15);
    for (std::size_t const update : updates) {
      std::ranges::transform(sum, every[update], sum.begin(), std::plus<>());
    }
    std::ranges::transform(sum, sum.begin(), [&](double each) { return each / static_cast<double>(updates.size()); });
    return sum;
  };
  std::vector<std::vector<std::size_t>> const averaged = {{1},       {2},       {2},       {2, 4},    {2, 4},
                                                          {2, 4, 6}, {2, 4, 6}, {4, 6, 8}, {4, 6, 8}, {6, 8, 10}};
  for (std::size_t update = 1; update <= averaged.size(); ++update) {
    bench_.update(optimizer, rate, static_cast<std::int64_t>(update));
    every.push_back(heddle::values(parameter(0).value));
    EXPECT_LE(relative_error(heddle::values(optimizer.state_in("average", place)), mean(averaged[update - 1])),
              tolerance())
        << update;
  }
}

TEST_P(OptimizerTest, ARulesOwnAverageIsThatOfTheValues) {
  OptimizerConfig config;
  config.name = "schedule_free_adamw";
  config.groups = {{"matrix", {"matrix"}, {.options = {{"value_offset", {2.0, "", ""}}}, .weight_decay = 0.5}}};
  config.groups[0].rule.zero_last_row = true;
  Optimizer const optimizer = bench_.optimizer(config);
  bench_.update(optimizer, rate, 1);
  // After its first step the average is where the values are, whatever they stand for.
  std::vector<double> const expected = heddle::values(parameter(0).value);
  IndexRange const place{parameter(0).place.begin, parameter(0).place.begin + 15};
  EXPECT_LE(relative_error(heddle::values(optimizer.state_in("average", place)), expected), tolerance());
  EXPECT_EQ(expected.back(), 0);
}

TEST_P(OptimizerTest, GroupingAgainKeepsTheState) {
  Optimizer optimizer = bench_.optimizer(OptimizerConfig());
  bench_.update(optimizer, rate, 1);
  auto const moments = heddle::values(optimizer.state().at("adam.first_moment"));
  for (std::int64_t const begin : {7, 0}) {
    parameters().find("vector")->state_begin = begin;
    optimizer.regroup();
    EXPECT_EQ(heddle::values(optimizer.state().at("adam.first_moment")), moments);
    IndexRange const vector{parameter(1).place.begin, parameter(1).place.begin + 7};
    auto expected = heddle::values(parameter(1).gradient);
    for (double& moment : expected) {
      moment *= 1 - beta1;
    }
    EXPECT_LE(relative_error(heddle::values(optimizer.state_in("adam.first_moment", vector)), expected), tolerance());
  }
}

TEST_P(OptimizerTest, AFrozenParameterHasNoState) {
  OptimizerConfig config;
  config.groups = {{"still", {"mat*"}, {.frozen = true}}};
  Optimizer const optimizer = bench_.optimizer(config);
  EXPECT_TRUE(parameter(0).state.empty());
  EXPECT_EQ(optimizer.state_bytes(), 2 * parameter(1).place.count() * static_cast<std::int64_t>(size_of(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Types, OptimizerTest, testing::Values(DType::float64, DType::float32),
                         [](auto const& case_info) { return std::string(name_of(case_info.param)); });

}  // namespace
}  // namespace heddle
