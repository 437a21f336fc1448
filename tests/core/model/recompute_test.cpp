#include <heddle/core/config/config.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

constexpr VocabularySizes vocabulary{11, 11, true};

Pack long_pack() {
  std::vector<Sample> pairs;
  for (std::int32_t sample = 0; sample < 6; ++sample) {
    pairs.push_back({sample, std::vector<std::int32_t>(static_cast<std::size_t>(5 + sample), 3 + sample),
                     std::vector<std::int32_t>(static_cast<std::size_t>(9 - sample), 4 + sample)});
  }
  return make_pack(pairs, test_ids);
}

struct Result {
  std::vector<double> gradients;
  double loss = 0;
  std::size_t peak = 0;
};

Result train(std::string const& keys, DType dtype, std::int64_t decoder_layers = 4) {
  Config config = parse_config(
      "[model]\nd_model = 16\nd_ff = 48\nheads = 2\nmax_length = 16\n"
      "dropout = 0.2\nattention_dropout = 0.1\nactivation_dropout = 0.1\n" +
          keys,
      "test");
  config.model.encoder.layers = 4;
  config.model.decoder.layers = decoder_layers;
  TestModel test(config.model, vocabulary, dtype, KernelChoices{});
  Pack const pack = long_pack();
  LayerContext context = test.bench.context(pack, true);
  test.bench.zero_gradients();
  LossSums const sums = test.model.forward_backward(context, {0.1, 0.5});
  EXPECT_EQ(test.bench.arena().mark(), 0U);
  return {values(test.bench.parameters().gradients()), sums.smoothed, test.bench.arena().peak()};
}

class RecomputeTest : public testing::TestWithParam<char const*> {};

// Chen et al. 2016: only memory and time change.
TEST_P(RecomputeTest, GradientsAreBitwiseThoseWithoutIt) {
  for (DType const dtype : {DType::float32, DType::bfloat16}) {
    std::string const keys = GetParam();
    Result const none = train(keys, dtype);
    std::size_t before = none.peak;
    for (std::string const recompute : {"attention", "layer"}) {
      SCOPED_TRACE(recompute + " " + std::string(name_of(dtype)));
      Result const result = train("recompute = \"" + recompute + "\"\n" + keys, dtype);
      EXPECT_EQ(result.gradients, none.gradients);
      EXPECT_EQ(result.loss, none.loss);
      EXPECT_LT(result.peak, before - before / 8);
      before = result.peak;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecomputeTest,
                         testing::Values("norm = \"post\"", "norm = \"pre\"",
                                         "norm = \"both\"\nnorm_kind = \"rms\"\nembedding_norm = true",
                                         "norm = \"pre\"\npositions = \"rotary\"\nactivation = \"swiglu\"\n"
                                         "[model.decoder]\nself_attention = { query_key_norm = true }",
                                         "norm = \"output\"\nlogit_cap = 2.0\n"
                                         "[model.decoder]\nself_attention = { joint_query_key_norm = true }",
                                         "positions = \"relative_buckets\"\nstacks = [\"decoder\"]",
                                         "[model.decoder]\nsublayers = [\"ssru\", \"cross_attention\", "
                                         "\"feed_forward\"]\ntied_layers = [1, 1, 2, 1]"),
                         [](auto const& instance) { return "model" + std::to_string(instance.index); });

TEST(Recompute, LayersDiffer) {
  Result const none = train("", DType::float32);
  Result const some = train(
      "[model.encoder.layer.\"1-2\"]\nrecompute = \"layer\"\n[model.decoder]\nrecompute = \"attention\"\n"
      "[model.decoder.layer.3]\nrecompute = \"none\"",
      DType::float32);
  EXPECT_EQ(some.gradients, none.gradients);
  EXPECT_LT(some.peak, none.peak);
  EXPECT_GT(some.peak, train("recompute = \"layer\"", DType::float32).peak);
}

/// With whole layers recomputed, a further one costs its input and no more: one tensor [tokens, d_model].
TEST(Recompute, AFurtherLayerKeepsItsInputOnly) {
  std::string const keys = "norm = \"post\"\nstacks = [\"decoder\"]\nrecompute = \"layer\"";
  auto const with = [&](int layers) { return train(keys, DType::float32, layers).peak; };
  std::size_t const input = static_cast<std::size_t>(long_pack().target_rows.tokens) * 16 * sizeof(float);
  EXPECT_EQ(with(5) - with(4), (input + 63) / 64 * 64);
  EXPECT_EQ(with(9) - with(4), 5 * ((input + 63) / 64 * 64));
}

TEST(Inference, AFurtherLayerOfAnEncoderTakesNoMemory) {
  auto const peak = [](std::int64_t layers) {
    Config config = parse_config("[model]\nd_model = 16\nd_ff = 48\nheads = 2\nmax_length = 16\n", "test");
    config.model.encoder.layers = layers;
    TestModel test(config.model, vocabulary, DType::float32, KernelChoices{});
    Pack const pack = long_pack();
    LayerContext context = test.bench.context(pack);
    test.model.encode(context);
    return test.bench.arena().peak();
  };
  EXPECT_EQ(peak(5), peak(2));
}

TEST(Recompute, ItsCostIsAThirdMore) {
  auto const cost = [](std::string const& recompute) {
    ModelConfig config;
    config.recompute =
        recompute == "layer" ? Recompute::layer : (recompute == "attention" ? Recompute::attention : Recompute::none);
    return description_of(config).layer(0).cost({.tokens = 10, .sequence = 5}).operations;
  };
  EXPECT_DOUBLE_EQ(cost("layer"), 4.0 / 3 * cost("none"));
  EXPECT_GT(cost("attention"), cost("none"));
  EXPECT_LT(cost("attention"), cost("layer"));
}

}  // namespace
}  // namespace heddle
