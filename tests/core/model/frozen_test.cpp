#include <gtest/gtest.h>

#include <algorithm>
#include <heddle/core/parameters/update_rules.hpp>
#include <map>

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
    gradients[parameter.spec.name] = testing_support::values(parameter.gradient);
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

INSTANTIATE_TEST_SUITE_P(Models, FrozenTest,
                         testing::Values("model_post_relu_sinusoidal_tied", "model_pre_gelu_learned_untied",
                                         "family_relative_buckets", "family_additive", "family_rms_norm"),
                         [](auto const& case_info) { return std::string(case_info.param); });

}  // namespace
}  // namespace heddle
