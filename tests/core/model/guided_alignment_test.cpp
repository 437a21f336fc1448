#include <heddle/core/config/config.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

ModelConfig guided_config(std::string const& options, std::string const& keys = "") {
  return parse_config(fmt::format("[model]\nd_model = 8\nd_ff = 8\nheads = 2\nmax_length = 8\nencoder_layers = 1\n"
                                  "decoder_layers = 2\ndropout = 0.2\nattention_dropout = 0.2\n{}\n"
                                  "[model.decoder.layer.\"2\"]\ncross_attention = {{ {} }}",
                                  keys, options),
                      "test")
      .model;
}

/// A target token with two links, some with one, some without; a sentence without links.
std::vector<Sample> const aligned_pairs{
    {4, {5, 6, 5}, {7, 8}, {{0, 1}, {2, 1}, {1, 0}}}, {9, {3}, {4, 4, 8}, {{0, 2}}}, {2, {7, 3}, {}}};

struct GuidedModel {
  explicit GuidedModel(ModelConfig const& config, DType dtype = DType::float64) : test(config, {9, 9, true}, dtype) {
    test.bench.zero_gradients();
  }
  LossSums forward_backward(Pack const& pack) {
    LayerContext context = test.bench.context(pack, true);
    return test.model.forward_backward(context, {0.1, 0.25});
  }
  LossSums forward(Pack const& pack) {
    LayerContext context = test.bench.context(pack, true);
    return test.model.forward(context, 0.1);
  }

  TestModel test;
};

double guided_loss(std::string const& options, std::vector<Sample> const& pairs) {
  Pack const pack = make_pack(pairs, test_ids);
  GuidedModel plain(guided_config(options));
  GuidedModel guided(guided_config(options + (options.empty() ? "" : ", ") + "guided_alignment_weight = 0.7"));
  LossSums const without = plain.forward(pack);
  LossSums const with = guided.forward(pack);
  EXPECT_EQ(with.negative_log_likelihood, without.negative_log_likelihood);
  return (with.smoothed - without.smoothed) / 0.7;
}

TEST(GuidedAlignment, GradientsAreThoseOfTheWholeLoss) {
  Pack const pack = make_pack(aligned_pairs, test_ids);
  for (std::string const keys : {"norm = \"post\"", "norm = \"pre\"\nrecompute = \"layer\""}) {
    for (std::string const options :
         {"guided_alignment_weight = 0.7", "guided_alignment_weight = 0.7, kv_heads = 1, query_key_norm = true",
          "guided_alignment_weight = 0.7, score = \"dot_product\""}) {
      GuidedModel guided(guided_config(options, keys));
      LossSums const sums = guided.forward_backward(pack);
      EXPECT_NEAR(sums.smoothed, guided.forward(pack).smoothed, 1e-12);
      for (Parameter const& parameter : guided.test.bench.parameters().all()) {
        expect_gradient([&] { return 0.25 * guided.forward(pack).smoothed; }, parameter.value, parameter.gradient,
                        parameter.spec.name.c_str());
      }
    }
  }
}

/// A softmax over one key is 1: its cross-entropy is 0. One over equal keys is uniform.
TEST(GuidedAlignment, IsTheCrossEntropyOfTheAttentionWeights) {
  EXPECT_EQ(guided_loss("", {{4, {5, 6}, {7, 8}}}), 0) << "no links";
  double const one = guided_loss("", {{4, {5, 6}, {7, 8}, {{0, 1}}}});
  double const other = guided_loss("", {{4, {5, 6}, {7, 8}, {{1, 1}}}});
  double const end = guided_loss("", {{4, {5, 6}, {7, 8}, {{2, 1}}}});  // the end token is a key, too
  EXPECT_NEAR(std::exp(-one) + std::exp(-other) + std::exp(-end), 1, 1e-12);
  EXPECT_NE(one, other);
  EXPECT_NEAR(guided_loss("", {{4, {5, 6}, {7, 8}, {{0, 1}, {1, 1}}}}), (one + other) / 2, 1e-12);
  EXPECT_NEAR(guided_loss("", {{4, {5, 6}, {7, 8}, {{0, 1}}}, {4, {5, 6}, {7, 8}, {{1, 1}}}}), one + other, 1e-12);
}

TEST(GuidedAlignment, GradientsInBfloat16AreNearThoseInFloat64) {
  Pack const pack = make_pack(aligned_pairs, test_ids);
  auto const gradients = [&](DType dtype) {
    GuidedModel guided(guided_config("guided_alignment_weight = 5.0", "norm = \"pre\""), dtype);
    guided.forward_backward(pack);
    return values(guided.test.bench.parameters().find("decoder.layers.1.cross_attention.q.weight")->gradient);
  };
  EXPECT_LT(relative_error(gradients(DType::bfloat16), gradients(DType::float64)), 0.05);
}

TEST(GuidedAlignment, IsAskedForByTheLayer) {
  EXPECT_EQ(description_of(guided_config("guided_alignment_weight = 0.1")).fields(),
            SampleFields{SampleField::alignment});
  EXPECT_TRUE(description_of(guided_config("guided_alignment_weight = 0")).fields().empty());
  for (char const* const option : {"soft_cap = 2.0", "score = \"additive\"", "score = \"linear\""}) {
    expect_config_error(
        [&] {
          description_of(guided_config(fmt::format("guided_alignment_weight = 0.1, {}", option),
                                       "[model.decoder]\nattention_dropout = 0.0"));
        },
        "needs scores that are products of queries and keys");
  }
}

}  // namespace
}  // namespace heddle
