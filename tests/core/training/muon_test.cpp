#include <cmath>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/core/training/optimizer.hpp>
#include <set>
#include <sstream>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

constexpr int steps = 20;

// As tests/golden/muon.py has them.
double initial_value(std::int64_t i) {
  return std::sin(static_cast<double>(i + 1));
}
double gradient_at(std::int64_t i, int step) {
  auto const element = static_cast<double>(i);
  return std::cos(0.7 * element * element + 1.3 * step) * static_cast<double>(1 + i % 3);
}
double rate_at(int step) {
  return 0.02 / std::sqrt(static_cast<double>(step));
}

/// A case of tests/golden/muon.txt or whole_rules.txt.
struct Golden {
  struct Tensor {
    std::string name;
    Shape shape;
    std::vector<double> numbers;  ///< the values and, of a matrix, the momentum
  };

  OptimizerConfig config;
  std::vector<Tensor> tensors;
};

OptimizerConfig config_of(std::istringstream& words) {
  OptimizerConfig config;
  for (std::string word; words >> word;) {
    std::size_t const equals = word.find('=');
    std::string const key = word.substr(0, equals);
    if (key == "name") {
      config.name = word.substr(equals + 1);
      continue;
    }
    double const value = std::stod(word.substr(equals + 1));
    if (key == "weight_decay") {
      config.weight_decay = value;
    } else {
      bool const is_flag =
          std::set<std::string>{"nesterov", "match_adam", "correct_bias", "scale_parameter"}.contains(key);
      config.options[key] = {is_flag ? OptionValue(value != 0) : OptionValue(value), "golden"};
    }
  }
  return config;
}

std::vector<Golden> read_golden(std::string const& file_name) {
  std::ifstream file(std::string(HEDDLE_TEST_DATA) + "/" + file_name);
  std::vector<Golden> all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, colon;
    words >> name;
    if (name == "case") {
      all.push_back({config_of(words), {}});
      continue;
    }
    std::int64_t rows = 0, columns = 0;
    words >> rows >> columns >> colon;
    Golden::Tensor& tensor =
        all.back().tensors.emplace_back(Golden::Tensor{name, rows > 0 ? Shape{rows, columns} : Shape{columns}, {}});
    for (double number = 0; words >> number;) {
      tensor.numbers.push_back(number);
    }
  }
  return all;
}

std::vector<double> filled(Tensor const& tensor, std::function<double(std::int64_t)> const& element) {
  std::vector<double> elements;
  for (std::int64_t index = 0; index < tensor.size(); ++index) {
    elements.push_back(element(index));
  }
  copy_from_doubles(tensor, elements);
  return elements;
}

/// Trains the parameters of a golden case, whose matrices are those of hidden layers, and returns the relative error.
double error_of(Golden const& golden, DType dtype, KernelChoices const& choices) {
  TestBench bench(ModelConfig(), dtype, choices);
  for (Golden::Tensor const& tensor : golden.tensors) {
    bench.parameters().declare(
        {.name = tensor.name, .placement = {tensor.shape}, .initializer = {}, .matrix = tensor.shape.rank() == 2});
  }
  bench.allocate();
  for (Parameter const& parameter : bench.parameters().all()) {
    filled(parameter.value, initial_value);
  }
  Optimizer const optimizer = bench.optimizer(golden.config);
  for (int step = 1; step <= steps; ++step) {
    for (Parameter const& parameter : bench.parameters().all()) {
      filled(parameter.gradient, [=](std::int64_t i) { return gradient_at(i, step); });
    }
    bench.update(optimizer, rate_at(step), step);
  }
  double error = 0;
  for (Golden::Tensor const& tensor : golden.tensors) {
    Parameter const& parameter = *bench.parameters().find(tensor.name);
    std::vector<double> actual = heddle::values(parameter.value);
    if (tensor.shape.rank() == 2 && golden.config.name == "muon") {
      auto const momentum = heddle::values(
          optimizer.state_in("muon.momentum", {parameter.place.begin, parameter.place.begin + parameter.value.size()}));
      actual.insert(actual.end(), momentum.begin(), momentum.end());
    }
    error = std::max(error, relative_error(actual, tensor.numbers));
  }
  return error;
}

TEST(Muon, TwentyStepsWithAdamWBesideItAreThoseOfPyTorch) {
  std::vector<Golden> const all = read_golden("muon.txt");
  ASSERT_EQ(all.size(), 3U);
  for (Golden const& golden : all) {
    EXPECT_LE(error_of(golden, DType::float64, reference_kernels()), 1e-10);
    EXPECT_LE(error_of(golden, DType::float32, KernelChoices()), 1e-3);
    Golden rounded = golden;
    rounded.config.options["bfloat16"] = {true, "test"};
    EXPECT_LE(error_of(rounded, DType::float32, KernelChoices()), 0.05) << "products in bfloat16";
    EXPECT_GT(error_of(rounded, DType::float32, KernelChoices()), 1e-4) << "are rounded";
  }
}

TEST(WholeRules, TwentyStepsAreThoseOfTheirAuthorsOrOfOtherPrograms) {
  std::vector<Golden> const all = read_golden("whole_rules.txt");
  ASSERT_EQ(all.size(), 8U);
  for (Golden const& golden : all) {
    EXPECT_LE(error_of(golden, DType::float64, reference_kernels()), 1e-10) << golden.config.name;
    EXPECT_LE(error_of(golden, DType::float64, KernelChoices()), 1e-10) << golden.config.name;
    EXPECT_LE(error_of(golden, DType::float32, KernelChoices()), 1e-3) << golden.config.name;
  }
}

class MuonRulesTest : public testing::Test {
 protected:
  MuonRulesTest() { config_.name = "muon"; }

  UpdateRule assigned(std::string const& name, bool is_matrix) const {
    return assigned_rule(config_, bench_.kernels().registries, name, is_matrix);
  }
  void resolve() {
    ScheduleRegistry schedules;
    register_schedules(schedules);
    resolve_rules(config_, bench_.kernels().registries, schedules);
  }
  static Setting setting(OptionValue const& value) { return {value, "run.toml:3:1", "optimizer.key"}; }

  TestBench bench_{ModelConfig(), DType::float32};
  OptimizerConfig config_;
};

TEST_F(MuonRulesTest, TheRestHasItsOwnRuleAndOptions) {
  config_.options = {{"momentum", setting(0.9)}, {"beta2", setting(0.99)}};
  resolve();
  EXPECT_EQ(config_.rest, "adamw");
  UpdateRule const matrix = assigned("a.weight", true);
  EXPECT_EQ(matrix.name, "muon");
  EXPECT_EQ(matrix.options.at("momentum").value, OptionValue(0.9));
  EXPECT_FALSE(matrix.options.contains("beta2"));
  UpdateRule const rest = assigned("a.bias", false);
  EXPECT_EQ(rest.name, "adamw");
  EXPECT_EQ(rest.options.at("beta2").value, OptionValue(0.99));
  EXPECT_EQ(rest.options.at("beta1").value, OptionValue(0.9)) << "its default";
  EXPECT_FALSE(rest.options.contains("momentum"));
}

TEST_F(MuonRulesTest, AMatrixHasTwoDimensions) {
  EXPECT_THROW(
      bench_.parameters().declare({.name = "cube", .placement = {{2, 2, 2}}, .initializer = {}, .matrix = true}),
      Error);
}

TEST_F(MuonRulesTest, TheConfigurationNamesTheRuleOfTheRest) {
  config_.rest = "lion";
  resolve();
  EXPECT_EQ(assigned("a.bias", false).name, "lion");
  config_.rest = "muon";
  expect_config_error([&] { resolve(); }, "optimizer.rest = \"muon\": expected a rule that updates any elements");
  config_.name = "adam";
  config_.options.clear();
  config_.rest = "lion";
  expect_config_error([&] { resolve(); }, "optimizer.rest = \"lion\" is for a rule over matrices");
}

TEST_F(MuonRulesTest, InAGroupTheRestHasTheOptimizersRule) {
  config_.name = "sgd";
  config_.options = {{"momentum", setting(0.5)}};
  config_.groups = {{"matrices", {"layers.*"}, {.name = "muon", .learning_rate_factor = 0.25}}};
  resolve();
  EXPECT_EQ(assigned("layers.weight", true).options.at("momentum").value, OptionValue(0.95));
  UpdateRule const rest = assigned("layers.bias", false);
  EXPECT_EQ(rest.name, "sgd");
  EXPECT_EQ(rest.options.at("momentum").value, OptionValue(0.5));
  EXPECT_EQ(rest.learning_rate_factor, 0.25);
  EXPECT_EQ(assigned("embedding.weight", true).name, "sgd") << "it is in no group";
}

TEST_F(MuonRulesTest, AnOptionOfNeitherRuleIsRefused) {
  config_.options = {{"beta3", setting(0.5)}};
  expect_config_error([&] { resolve(); }, "there is no key optimizer.key for the update rule muon with");
}

}  // namespace
}  // namespace heddle
