#include <heddle/core/parameters/update_rules.hpp>

#include "golden_file.hpp"
#include "golden_model.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

using Patterns = std::vector<std::string>;

/// The gradients of a pass, by name; empty: none.
std::map<std::string, std::vector<double>> gradients_of(GoldenFile const& golden, KernelChoices const& choices,
                                                        DType dtype, Patterns const& frozen) {
  TestModel test(golden.model(), golden.vocabulary(), dtype, choices, frozen);
  Pack const pack = golden.pack();
  LayerContext context = test.bench.context(pack);
  test.model.forward_backward(context, {0.1, 1});
  std::map<std::string, std::vector<double>> gradients;
  for (Parameter const& parameter : test.bench.parameters().all()) {
    gradients[parameter.spec.name] = heddle::values(parameter.gradient);
    EXPECT_EQ(parameter.gradient.empty(), parameter.rule.frozen) << parameter.spec.name;
  }
  return gradients;
}

class FrozenTest : public testing::TestWithParam<char const*> {};

TEST_P(FrozenTest, OtherGradientsKeepTheirBits) {
  GoldenFile const golden(GetParam());
  for (bool const reference : {true, false}) {
    KernelChoices const choices = reference ? reference_kernels() : KernelChoices();
    DType const dtype = reference ? DType::float64 : DType::float32;
    auto const all = gradients_of(golden, choices, dtype, {});
    for (Patterns const& frozen : {Patterns{"encoder.*"},
                                   {"decoder.*"},
                                   {"*norm*"},
                                   {"*embedding.weight"},
                                   {"*position*", "*attention_bias*", "*score*"},
                                   {"*.bias", "*out*"},
                                   {"encoder.*", "*embedding*", "*position*"}}) {
      SCOPED_TRACE(frozen.front());
      int matched = 0;
      for (auto const& [name, gradient] : gradients_of(golden, choices, dtype, frozen)) {
        bool const is_frozen =
            std::ranges::any_of(frozen, [&](std::string const& pattern) { return matches_pattern(pattern, name); });
        matched += is_frozen ? 1 : 0;
        EXPECT_TRUE(gradient.empty() ? is_frozen : gradient == all.at(name)) << name;
      }
      EXPECT_TRUE(matched > 0 || frozen.front().starts_with("*position")) << "a pattern without parameters";
    }
  }
}

/// Losses and the adapters' gradients with and without values in bfloat16; the others have been rounded to them.
void expect_rounded_values_compute_as_their_numbers(DType dtype, KernelChoices const& choices, double tolerance) {
  GoldenFile const golden("family_adapters");
  ModelConfig config = golden.model();
  config.frozen.trained = {"*.lora_a", "*.lora_b"};
  Patterns const frozen{"*.weight", "*.bias"};
  TestModel plain(config, golden.vocabulary(), dtype, choices, frozen);
  config.frozen.rounded = true;
  TestModel rounded(config, golden.vocabulary(), dtype, choices, frozen);
  int matrices = 0;
  for (Parameter const& parameter : rounded.bench.parameters().all()) {
    matrices += parameter.spec.rounded ? 1 : 0;
    EXPECT_EQ(parameter.spec.rounded, parameter.value.shape().rank() == 2 && parameter.spec.name.ends_with(".weight") &&
                                          parameter.spec.name.find("positions") == std::string::npos)
        << parameter.spec.name;
    copy_from_doubles(plain.bench.parameters().find(parameter.spec.name)->value, heddle::values(parameter.value));
  }
  EXPECT_GT(matrices, 10);
  EXPECT_EQ(rounded.bench.parameters().values().bytes() + 2 * rounded.bench.parameters().rounded().bytes(),
            plain.bench.parameters().values().bytes());
  plain.bench.parameters().bump_versions();
  Pack const pack = golden.pack();
  std::vector<double> losses;
  for (TestModel* const test : {&plain, &rounded}) {
    LayerContext context = test->bench.context(pack);
    losses.push_back(test->model.forward_backward(context, {0.1, 1}).smoothed);
  }
  EXPECT_NEAR(losses[1], losses[0], tolerance * losses[0]);
  for (Parameter const& parameter : rounded.bench.parameters().all()) {
    Parameter const& other = *plain.bench.parameters().find(parameter.spec.name);
    EXPECT_EQ(parameter.gradient.empty(), other.gradient.empty()) << parameter.spec.name;
    EXPECT_LE(relative_error(heddle::values(parameter.gradient), heddle::values(other.gradient)), tolerance)
        << parameter.spec.name;
  }
}

TEST(FrozenPrecisionTest, RoundedValuesComputeAsTheirNumbers) {
  expect_rounded_values_compute_as_their_numbers(DType::float32, reference_kernels(), 0);
  expect_rounded_values_compute_as_their_numbers(DType::bfloat16, reference_kernels(), 0);
  expect_rounded_values_compute_as_their_numbers(DType::float32, KernelChoices(), 1e-5);
  expect_rounded_values_compute_as_their_numbers(DType::float32, KernelChoices("kokkos"), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Models, FrozenTest,
                         testing::Values("model_post_relu_sinusoidal_tied", "model_pre_gelu_learned_untied",
                                         "family_relative_buckets", "family_additive", "family_rms_norm"),
                         [](auto const& case_info) { return std::string(case_info.param); });

}  // namespace
}  // namespace heddle
