#include <heddle/core/layers/linear.hpp>
#include <heddle/core/layers/low_rank.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

ModelConfig with_adapters(std::vector<std::string> targets, std::int64_t rank = 2) {
  ModelConfig model;
  model.adapter.rank = rank;
  model.adapter.alpha = 3;
  model.adapter.targets = std::move(targets);
  return model;
}

/// The names of the parameters of a Linear with the parts q [6], k [4] and v [4].
std::vector<std::string> names_of(ModelConfig const& model) {
  TestBench bench(model, DType::float64);
  Linear const linear(bench.spec("layer", Side::target), 5, {{"q", 6}, {"k", 4}, {"v", 4}}, Linear::Split::outputs);
  std::vector<std::string> names;
  for (Parameter const& parameter : bench.parameters().all()) {
    names.push_back(parameter.spec.name + parameter.global_shape().to_string());
  }
  return names;
}

TEST(LowRank, BelongsToTheTargetsOnly) {
  std::vector<std::string> const plain = names_of(ModelConfig());
  EXPECT_EQ(plain.size(), 6U);
  EXPECT_EQ(names_of(with_adapters({"*.other"})), plain);
  EXPECT_EQ(names_of(with_adapters({"*"}, 0)), plain);
  std::vector<std::string> const adapted = names_of(with_adapters({"*.q", "layer.v"}));
  EXPECT_THAT(adapted, testing::IsSupersetOf(plain));
  EXPECT_THAT(adapted, testing::IsSupersetOf({"layer.q.lora_a[2, 5]", "layer.v.lora_a[2, 5]", "layer.q.lora_b[6, 2]",
                                              "layer.v.lora_b[4, 2]"}));
  EXPECT_EQ(adapted.size(), 10U);
}

TEST(LowRank, StartsWithoutEffectFromBoundedNumbers) {
  TestBench bench(with_adapters({"*"}), DType::float64);
  Linear const linear(bench.spec("layer", Side::target), {16, 3}, Linear::Split::none);
  bench.parameters().allocate(DType::float64);
  bench.parameters().initialize(1);
  double largest = 0;
  for (double const value : values(bench.parameters().find("layer.lora_a")->value)) {
    largest = std::max(largest, std::abs(value));
  }
  EXPECT_GT(largest, 0.15);
  EXPECT_LE(largest, 0.25) << "1 / sqrt(16)";
  EXPECT_EQ(values(bench.parameters().find("layer.lora_b")->value), std::vector<double>(6));
}

TEST(LowRank, AddsTheScaledProductOfBAndA) {
  TestBench bench(with_adapters({"*.v"}), DType::float64);
  Linear const linear(bench.spec("layer", Side::target), 5, {{"q", 1}, {"v", 2}}, Linear::Split::outputs);
  bench.parameters().allocate(DType::float64);
  bench.parameters().initialize(1);
  Pack const pack = make_pack(std::vector<Sample>{{0, {}, {}}}, test_ids);
  LayerContext context = bench.context(pack);
  std::vector<double> const x{1, -2, 3, 0.5, 4};
  Tensor const input = from_doubles(x, DType::float64, {1, 5});
  std::vector<double> expected = values(linear.forward(context, input));
  std::vector<double> const b{0.5, -1, 2, 0.25};
  copy_from_doubles(bench.parameters().find("layer.v.lora_b")->value, b);
  bench.parameters().bump_versions();
  std::vector<double> const a = values(bench.parameters().find("layer.v.lora_a")->value);
  for (std::size_t row = 0; row < 2; ++row) {
    for (std::size_t r = 0; r < 2; ++r) {
      for (std::size_t column = 0; column < 5; ++column) {
        expected[1 + row] += 1.5 * b[row * 2 + r] * a[r * 5 + column] * x[column];
      }
    }
  }
  EXPECT_THAT(values(linear.forward(context, input)), Pointwise(DoubleNear(1e-12), expected));
}

TEST(LowRank, ATargetWithoutProjectionsIsNamed) {
  AdapterConfig adapter = with_adapters({"*.q", "*.gate"}).adapter;
  std::vector<std::string> const names{"layer.q.weight", "layer.q.lora_a", "layer.q.lora_b"};
  auto const refused = [&] { require_targets_match(adapter, names); };
  expect_config_error(refused, "adapter.targets has the pattern \"*.gate\", which matches no projection");
  adapter.targets.pop_back();
  EXPECT_NO_THROW(refused());
  adapter.targets = {"*.gate"};
  adapter.rank = 0;
  EXPECT_NO_THROW(refused()) << "there are no adapters";
}

}  // namespace
}  // namespace heddle
