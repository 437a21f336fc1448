#include <heddle/core/operations/update.hpp>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

constexpr std::int64_t elements = 24;
constexpr int steps = 20;

// As tests/golden/update_rules.py has them.
double initial_value(std::int64_t i) {
  return std::sin(static_cast<double>(i + 1));
}
double gradient_at(std::int64_t i, int step) {
  return i % 7 == 0 ? 0 : std::cos(0.7 * static_cast<double>(i) + 1.3 * step) * static_cast<double>(1 + i % 3);
}
constexpr int warmup = 6;
double rate_at(std::string const& rule, int step) {
  return rule == "schedule_free_adamw" ? 0.02 * std::min(step, warmup) / warmup
                                       : 0.02 / std::sqrt(static_cast<double>(step));
}

/// A line of tests/golden/update_rules.txt.
struct Golden {
  std::string rule;
  double weight_decay = 0;
  Settings options;
  Values numbers;  ///< the values, then the tensors that the rule keeps
};

std::vector<Golden> read_golden() {
  std::vector<Golden> all;
  for (std::string const& line : lines_of(read_whole(std::string(HEDDLE_TEST_DATA) + "/update_rules.txt"))) {
    std::istringstream words(line);
    Golden& golden = all.emplace_back();
    words >> golden.rule >> golden.weight_decay;
    for (std::string word; words >> word && word != ":";) {
      std::size_t const equals = word.find('=');
      double const value = std::stod(word.substr(equals + 1));
      std::string const key = word.substr(0, equals);
      golden.options[key] = {key == "nesterov" ? OptionValue(value != 0) : OptionValue(value), "golden"};
    }
    for (double number = 0; words >> number;) {
      golden.numbers.push_back(number);
    }
  }
  return all;
}

UpdateCall call_of(RuleDefinition const& rule, DType dtype, Values const& values) {
  Shape const shape{static_cast<std::int64_t>(values.size())};
  UpdateCall call{.rule = rule.name,
                  .value = tensor_of(values, dtype, shape),
                  .gradient = Tensor::allocate(dtype, shape),
                  .scalars = Tensor::allocate(DType::float64, {update_scalars::count}),
                  .options = option_values(rule, {})};
  for (std::size_t index = 0; index < rule.state.size(); ++index) {
    call.state.at(index) = Tensor::allocate(dtype, shape);
  }
  return call;
}

void set_step(UpdateCall const& call, RuleDefinition const& rule, UpdateStep const& step) {
  copy_from_host(call.scalars, update_scalars_of(rule, call.options, step).data());
}

/// The largest difference from the expected numbers, of which each is at least 1e-3 large or counts as that.
double error_of(UpdateCall const& call, RuleDefinition const& rule, Values const& expected) {
  Values actual = values(call.value);
  for (std::size_t index = 0; index < rule.state.size(); ++index) {
    Values const kept = values(call.state.at(index));
    actual.insert(actual.end(), kept.begin(), kept.end());
  }
  double error = actual.size() == expected.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < actual.size() && i < expected.size(); ++i) {
    error = std::max(error, std::abs(actual[i] - expected[i]) / std::max(std::abs(expected[i]), 1e-3));
  }
  return error;
}

class UpdateTest : public BuiltInKernelsTest {
 protected:
  /// Calls `visit(entry, rule)` for every implementation of every rule.
  template <class Visit>
  void for_each_implementation(Visit const& visit) {
    for (auto const& entry : registries_.of<Update>().entries()) {
      SCOPED_TRACE(entry.name + " of " + entry.kernel->rule().name);
      visit(*entry.kernel, entry.kernel->rule());
    }
  }
};

TEST_F(UpdateTest, TwentyStepsOfEveryImplementationAreThoseOfPyTorch) {
  std::vector<Golden> const all = read_golden();
  ASSERT_EQ(all.size(), 9U);
  for (Golden const& golden : all) {
    int checked = 0;
    for_each_implementation([&](Update& kernel, RuleDefinition const& rule) {
      for (DType const dtype : {DType::float32, DType::float64}) {
        if (!kernel.supports({golden.rule, dtype})) {
          continue;
        }
        Values initial;
        for (std::int64_t i = 0; i < elements; ++i) {
          initial.push_back(initial_value(i));
        }
        UpdateCall call = call_of(rule, dtype, initial);
        call.options = option_values(rule, golden.options);
        call.weight_decay = golden.weight_decay;
        for (int step = 1; step <= steps; ++step) {
          Values gradient;
          for (std::int64_t i = 0; i < elements; ++i) {
            gradient.push_back(2 * gradient_at(i, step));
          }
          call.gradient = tensor_of(gradient, dtype, Shape{elements});
          set_step(call, rule,
                   {.learning_rate = rate_at(golden.rule, step),
                    .gradient_scale = 0.5,
                    .step = step,
                    .warmup_steps = warmup});
          kernel.update(execution_, call);
        }
        EXPECT_LE(error_of(call, rule, golden.numbers), dtype == DType::float64 ? 1e-10 : 2e-4)
            << golden.rule << " " << name_of(dtype);
        ++checked;
      }
    });
    EXPECT_EQ(checked, 6) << golden.rule << ": three implementations, two types";
  }
}

// More than one work item, and no multiple of a vector: each element is updated, by itself.
TEST_F(UpdateTest, EveryElementIsUpdatedAlike) {
  for_each_implementation([&](Update& kernel, RuleDefinition const& rule) {
    for (std::int64_t const size : {1, 7, 4099, 12289}) {
      UpdateCall const call = call_of(rule, DType::float32, Values(static_cast<std::size_t>(size), 0.75));
      copy_from_host(call.gradient, std::vector<float>(static_cast<std::size_t>(size), -0.5F).data());
      bool const begins = !rule.state.empty();  // the first update of a whole matrix may be none
      set_step(call, rule, {.learning_rate = 0.01, .step = begins ? 1 : 2});
      kernel.update(execution_, call);
      Values const updated = values(call.value);
      EXPECT_GT(updated.front(), 0.75);
      EXPECT_EQ(updated, Values(static_cast<std::size_t>(size), updated.front())) << size;
    }
  });
}

TEST_F(UpdateTest, AZeroGradientLeavesTheValueAlone) {
  for_each_implementation([&](Update& kernel, RuleDefinition const& rule) {
    UpdateCall const call = call_of(rule, DType::float32, {1, -2, 3});
    set_step(call, rule, {.learning_rate = 0.01});
    kernel.update(execution_, call);
    EXPECT_EQ(values(call.value), (Values{1, -2, 3}));
  });
}

TEST_F(UpdateTest, ARuleIsNamedAndItsOptionsAreChecked) {
  expect_config_error([&] { rule_definition(registries_, "lyon", "run.toml:3:1: optimizer.name"); },
                      "run.toml:3:1: optimizer.name = \"lyon\": there is no such update rule; did you mean lion?");
  RuleDefinition const lion = rule_definition(registries_, "lion", "");
  auto const options = [&](std::string const& name, OptionValue const& value) {
    return option_values(lion, {{name, {value, "run.toml:4:1", "optimizer." + name}}});
  };
  EXPECT_EQ(options("beta2", 0.5)[1], 0.5);
  EXPECT_EQ(options("beta2", 0.5)[0], 0.9) << "its default";
  expect_config_error([&] { options("epsilon", 1e-9); },
                      "run.toml:4:1: there is no key optimizer.epsilon for the update rule "
                      "lion; expected one of: beta1, beta2");
  expect_config_error([&] { options("beta1", 1.0); },
                      "run.toml:4:1: optimizer.beta1 is the number 1.0; expected a number, "
                      "at least 0 and below 1");
  expect_config_error([&] { options("beta1", "x"); }, "is the string \"x\"");
}

TEST_F(UpdateTest, ARuleWhoseStateNoCheckpointCanKeepIsRefused) {
  for (std::string const key : {"", "value", ".momentum", "new/momentum"}) {
    SCOPED_TRACE(key);
    expect_config_error([&] { implementation_prefix(registries_, {.name = "new", .state = {key}}); },
                        "expected a key of its own for each");
  }
  EXPECT_NO_THROW(implementation_prefix(registries_, {.name = "new", .state = {"new.momentum"}}));
}

TEST_F(UpdateTest, StateOfAWholeMatrixHasKeysBesideThoseOfItsElements) {
  RuleDefinition rule = rule_definition(registries_, "soap", "");
  MatrixProblem const problem{DType::float32, 3, 5, option_values(rule, {{"max_precond_dim", {std::int64_t{4}, ""}}})};
  std::vector<MatrixState> const state = matrix_state(rule, problem);
  ASSERT_EQ(state.size(), 4U) << "the longer side has no basis";
  EXPECT_EQ(state.back().key, "soap.row_basis");
  EXPECT_EQ(state.back().shape, (Shape{3, 3}));
  rule.state = {"soap.row_basis"};
  expect_config_error([&] { matrix_state(rule, problem); }, "expected a key of its own for each");
  EXPECT_TRUE(matrix_state(rule_definition(registries_, "lamb", ""), problem).empty());
}

}  // namespace
}  // namespace heddle
