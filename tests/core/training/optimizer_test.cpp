#include <gtest/gtest.h>

#include <cmath>
#include <heddle/core/training/optimizer.hpp>
#include <limits>

#include "golden_file.hpp"
#include "golden_model.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

constexpr double rate = 0.01;

class OptimizerTest : public testing::TestWithParam<DType> {
 protected:
  OptimizerTest() {
    parameters().declare({"matrix", {3, 5}, Initializer::zeros(), {}, {}});
    parameters().declare({"vector", {7}, Initializer::zeros(), {}, {}});
    bench_.allocate();
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
  std::vector<double> values() { return testing_support::values(parameters().values()); }
  double gradient_norm() {
    double sum = 0;
    for (double const gradient : testing_support::values(parameters().gradients())) {
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
  Optimizer optimizer(config, bench_.kernels(), parameters());
  auto const before = testing_support::values(parameter(0).value);
  auto const gradient = testing_support::values(parameter(0).gradient);
  double const norm = optimizer.update(bench_.execution(), rate, 1);
  EXPECT_NEAR(norm, gradient_norm(), tolerance() * norm);
  std::vector<double> expected;
  for (std::size_t index = 0; index < before.size(); ++index) {
    expected.push_back(before[index] - rate * gradient[index] / (std::abs(gradient[index]) + config.epsilon));
  }
  EXPECT_LE(relative_error(testing_support::values(parameter(0).value), expected), tolerance());
}

TEST_P(OptimizerTest, DecayIsDecoupledInAdamW) {
  OptimizerConfig config;
  config.name = OptimizerName::adamw;
  config.weight_decay = 0.5;
  bench_.zero_gradients();
  auto expected = values();
  for (double& value : expected) {
    value *= 1 - rate * config.weight_decay;
  }
  Optimizer optimizer(config, bench_.kernels(), parameters());
  optimizer.update(bench_.execution(), rate, 1);
  EXPECT_LE(relative_error(values(), expected), tolerance());
}

TEST_P(OptimizerTest, ClippingScalesTheGradientToTheNorm) {
  OptimizerConfig config;
  config.clip_norm = 0.25;
  Optimizer optimizer(config, bench_.kernels(), parameters());
  double const norm = gradient_norm();
  ASSERT_GT(norm, config.clip_norm);
  EXPECT_NEAR(optimizer.update(bench_.execution(), rate, 1), norm, tolerance() * norm) << "the norm before clipping";
  auto expected = testing_support::values(parameters().gradients());
  for (double& moment : expected) {
    moment *= (1 - config.beta1) * config.clip_norm / norm;
  }
  EXPECT_LE(relative_error(testing_support::values(optimizer.first_moments()), expected), tolerance());
}

TEST_P(OptimizerTest, NoClippingBelowTheNorm) {
  OptimizerConfig config;
  config.clip_norm = 2 * gradient_norm();
  Optimizer optimizer(config, bench_.kernels(), parameters());
  optimizer.update(bench_.execution(), rate, 1);
  auto expected = testing_support::values(parameters().gradients());
  for (double& moment : expected) {
    moment *= 1 - config.beta1;
  }
  EXPECT_LE(relative_error(testing_support::values(optimizer.first_moments()), expected), tolerance());
}

TEST_P(OptimizerTest, AGradientThatIsNotFiniteChangesNothing) {
  Optimizer optimizer(OptimizerConfig(), bench_.kernels(), parameters());
  auto const before = values();
  auto const version = parameter(0).version;
  for (double const bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    auto gradient = testing_support::values(parameter(1).gradient);
    gradient[3] = bad;
    copy_from_doubles(parameter(1).gradient, gradient);
    EXPECT_FALSE(std::isfinite(optimizer.update(bench_.execution(), rate, 1)));
    EXPECT_EQ(values(), before);
    EXPECT_EQ(parameter(0).version, version);
    EXPECT_EQ(testing_support::values(optimizer.second_moments()), std::vector<double>(before.size()));
  }
}

TEST_P(OptimizerTest, AnUpdateMakesNewVersions) {
  Optimizer optimizer(OptimizerConfig(), bench_.kernels(), parameters());
  auto const version = parameter(1).version;
  optimizer.update(bench_.execution(), rate, 1);
  EXPECT_GT(parameter(1).version, version);
}

TEST_P(OptimizerTest, MomentsOfAParameterAreItsOwn) {
  Optimizer optimizer(OptimizerConfig(), bench_.kernels(), parameters());
  optimizer.update(bench_.execution(), rate, 1);
  for (Parameter const& each : parameters().all()) {
    Tensor const first = optimizer.moment_of(each, optimizer.first_moments());
    EXPECT_EQ(first.shape(), each.local_shape);
    auto expected = testing_support::values(each.gradient);
    for (double& moment : expected) {
      moment *= 0.1;
    }
    EXPECT_LE(relative_error(testing_support::values(first), expected), tolerance()) << each.spec.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, OptimizerTest, testing::Values(DType::float64, DType::float32),
                         [](auto const& case_info) { return std::string(name_of(case_info.param)); });

}  // namespace
}  // namespace heddle
