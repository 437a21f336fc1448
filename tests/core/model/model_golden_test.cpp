#include "golden_file.hpp"
#include "golden_model.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

/// The largest difference of a run from PyTorch's float64, relative to each tensor's largest element.
struct Tolerance {
  double logits;
  double gradients;
  double losses;      ///< of ten optimizer steps, and the gradient norms
  double parameters;  ///< after them
  double key_biases;  ///< the same, where a projection of keys has its bias
};
// A key's bias moves no softmax: its gradient is zero but for rounding, which Adam divides by its own size. In float64
// epsilon keeps that small; in float32 parameters after ten steps are compared through the losses only.
constexpr Tolerance float64_tolerance{1e-13, 1e-13, 1e-13, 1e-12, 1e-7};
constexpr Tolerance float32_tolerance{3e-6, 2e-5, 1e-5, 0, 0};

class GoldenTest : public testing::TestWithParam<char const*> {
 protected:
  explicit GoldenTest(std::string const& group) : golden_(group + "_" + GetParam()) {}

  void expect_the_golden_parameters() {
    TestModel test(golden_.model(), golden_.vocabulary(), DType::float64);
    std::set<std::string> names;
    for (auto const& [name, values] : by_golden_name(test.bench.parameters(), &Parameter::value)) {
      names.insert(name);
      EXPECT_EQ(values.size(), golden_.tensor("gradient:" + name).size());
    }
    auto const golden_names = golden_.names_after("gradient:");
    EXPECT_EQ(names, std::set<std::string>(golden_names.begin(), golden_names.end()));
  }

  void expect_logits_and_gradients(TestModel& test, Tolerance const& tolerance) {
    Pack const pack = golden_.pack();
    LayerContext context = test.bench.context(pack);
    EXPECT_LE(relative_error(heddle::values(test.model.logits(context)), golden_.tensor("logits")), tolerance.logits);

    LossSums const sums = test.model.forward_backward(context, training(pack));
    auto const tokens = static_cast<double>(pack.target_rows.tokens);
    EXPECT_EQ(sums.tokens, pack.target_rows.tokens);
    EXPECT_LE(relative_error({sums.smoothed / tokens}, {golden_.tensor("losses")[0]}), tolerance.logits);
    EXPECT_LE(relative_error({sums.negative_log_likelihood / tokens}, golden_.tensor("negative_log_likelihood")),
              tolerance.logits);
    LossSums const again = test.model.forward(context, golden_.number("label_smoothing"));
    // Without gradients a kernel may take its sums in another order.
    EXPECT_NEAR(again.smoothed, sums.smoothed, tolerance.losses * sums.smoothed);
    EXPECT_NEAR(again.negative_log_likelihood, sums.negative_log_likelihood, tolerance.losses * sums.smoothed);
    for (auto const& [name, gradient] : by_golden_name(test.bench.parameters(), &Parameter::gradient)) {
      EXPECT_LE(relative_error(gradient, golden_.tensor("gradient:" + name)), tolerance.gradients) << name;
    }
  }

  OutputLoss::Training training(Pack const& pack) const {
    return {golden_.number("label_smoothing"), 1 / static_cast<double>(pack.target_rows.tokens)};
  }

  GoldenFile golden_;
};

/// Whole trajectories of the paper's model.
class ModelGoldenTest : public GoldenTest {
 protected:
  ModelGoldenTest() : GoldenTest("model") {}

  void expect_ten_steps(TestModel& test, Tolerance const& tolerance) {
    OptimizerConfig const config = golden_.optimizer();
    Optimizer const optimizer = test.bench.optimizer(config);
    Pack const pack = golden_.pack();
    LayerContext context = test.bench.context(pack);
    std::vector<double> losses;
    std::vector<double> norms;
    for (std::int64_t step = 1; step <= 10; ++step) {
      test.bench.zero_gradients();
      LossSums const sums = test.model.forward_backward(context, training(pack));
      losses.push_back(sums.smoothed / static_cast<double>(sums.tokens));
      norms.push_back(test.bench.update(optimizer, config.learning_rate, step));
    }
    LossSums const sums = test.model.forward(context, golden_.number("label_smoothing"));
    losses.push_back(sums.smoothed / static_cast<double>(sums.tokens));
    EXPECT_LE(relative_error(losses, golden_.tensor("losses")), tolerance.losses);
    EXPECT_LE(relative_error(norms, golden_.tensor("gradient_norms")), tolerance.losses);
  }

  void expect_parameters_after(ParameterSet const& parameters, Tolerance const& tolerance) {
    for (auto const& [name, values] : by_golden_name(parameters, &Parameter::value)) {
      double sum = 0;
      double probe = 0;
      for (std::size_t index = 0; index < values.size(); ++index) {
        sum += values[index];
        probe += values[index] * golden_value("probe", static_cast<std::int64_t>(index));
      }
      EXPECT_LE(relative_error({sum, probe}, golden_.tensor("sums_after:" + name)),
                name.ends_with("kv.bias") ? tolerance.key_biases : tolerance.parameters)
          << name;
    }
    auto const whole = golden_.names_after("after:");
    EXPECT_EQ(whole.size(), 3U);
    for (std::string const& name : whole) {
      EXPECT_LE(relative_error(heddle::values(parameters.find(name)->value), golden_.tensor("after:" + name)),
                tolerance.parameters)
          << name;
    }
  }
};

TEST_P(ModelGoldenTest, ParametersAreTheGoldenOnes) {
  expect_the_golden_parameters();
}

TEST_P(ModelGoldenTest, ReferenceInFloat64EqualsPyTorch) {
  TestModel test(golden_.model(), golden_.vocabulary(), DType::float64);
  expect_logits_and_gradients(test, float64_tolerance);
  expect_ten_steps(test, float64_tolerance);
  expect_parameters_after(test.bench.parameters(), float64_tolerance);
}

TEST_P(ModelGoldenTest, ReferenceInFloat32EqualsPyTorch) {
  TestModel test(golden_.model(), golden_.vocabulary(), DType::float32);
  expect_logits_and_gradients(test, float32_tolerance);
  expect_ten_steps(test, float32_tolerance);
}

TEST_P(ModelGoldenTest, TheKernelsThatAutoPicksEqualPyTorch) {
  TestModel test(golden_.model(), golden_.vocabulary(), DType::float32, KernelChoices{});
  expect_logits_and_gradients(test, float32_tolerance);
  expect_ten_steps(test, float32_tolerance);
}

INSTANTIATE_TEST_SUITE_P(Variants, ModelGoldenTest,
                         testing::Values("post_relu_sinusoidal_tied", "pre_gelu_learned_untied",
                                         "pre_relu_sinusoidal_target_tied", "post_gelu_learned_separate"),
                         [](auto const& case_info) { return std::string(case_info.param); });

/// One micro-batch of models with other positions, heads, masks, norms and gates.
class FamilyGoldenTest : public GoldenTest {
 protected:
  FamilyGoldenTest() : GoldenTest("family") {}
};

TEST_P(FamilyGoldenTest, ParametersAreTheGoldenOnes) {
  expect_the_golden_parameters();
}

TEST_P(FamilyGoldenTest, ReferenceInFloat64EqualsPyTorch) {
  TestModel test(golden_.model(), golden_.vocabulary(), DType::float64);
  expect_logits_and_gradients(test, float64_tolerance);
}

TEST_P(FamilyGoldenTest, TheKernelsThatAutoPicksEqualPyTorch) {
  TestModel test(golden_.model(), golden_.vocabulary(), DType::float32, KernelChoices{});
  expect_logits_and_gradients(test, float32_tolerance);
}

INSTANTIATE_TEST_SUITE_P(Variants, FamilyGoldenTest,
                         testing::Values("rotary", "rotary_halves", "sinusoidal_halves", "alibi", "relative_buckets",
                                         "grouped_heads", "rms_norm", "bert_parts", "swiglu", "geglu", "window",
                                         "dot_product", "additive", "soft_cap", "linear", "rotary_linear",
                                         "rotary_llama3", "rotary_yarn", "gemma2", "olmo2", "qwen2", "widths",
                                         "own_biases", "own_rotations", "adapters"),
                         [](auto const& case_info) { return std::string(case_info.param); });

/// Ten steps that train nothing but adapters, beside PEFT's.
void expect_adapters_trained(DType dtype, KernelChoices const& choices, Tolerance const& tolerance) {
  GoldenFile const golden("family_adapters");
  TestModel test(golden.model(), golden.vocabulary(), dtype, choices, {"*.weight", "*.bias"});
  OptimizerConfig config = golden.optimizer();
  config.trained = {"*.lora_a", "*.lora_b"};
  Optimizer const optimizer = test.bench.optimizer(config);
  Pack const pack = golden.pack();
  LayerContext context = test.bench.context(pack);
  double const smoothing = golden.number("label_smoothing");
  auto const tokens = static_cast<double>(pack.target_rows.tokens);
  std::vector<double> losses;
  for (std::int64_t step = 1; step <= 10; ++step) {
    test.bench.zero_gradients();
    losses.push_back(test.model.forward_backward(context, {smoothing, 1 / tokens}).smoothed / tokens);
    test.bench.update(optimizer, config.learning_rate, step);
  }
  losses.push_back(test.model.forward(context, smoothing).smoothed / tokens);
  EXPECT_LE(relative_error(losses, golden.tensor("trained_losses")), tolerance.losses);
  EXPECT_LT(losses.back(), 0.9 * losses.front());
  auto const adapters = golden.names_after("after:");
  EXPECT_GT(adapters.size(), 0U);
  EXPECT_EQ(test.bench.parameters().trained().size(), adapters.size());
  for (std::string const& name : adapters) {
    EXPECT_LE(relative_error(heddle::values(test.bench.parameters().find(name)->value), golden.tensor("after:" + name)),
              tolerance.parameters)
        << name;
  }
}

TEST(AdapterGoldenTest, TrainAsPEFTs) {
  expect_adapters_trained(DType::float64, reference_kernels(), float64_tolerance);
  Tolerance in_float32 = float32_tolerance;
  in_float32.parameters = 1e-3;
  expect_adapters_trained(DType::float32, KernelChoices(), in_float32);
}

}  // namespace
}  // namespace heddle
