#include <fmt/format.h>
#include <gtest/gtest.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"
#include "values_elsewhere.hpp"

namespace heddle {
namespace {

ModelConfig gathered_model(std::string const& keys) {
  return parse_config(
             "[model]\nd_model = 8\nd_ff = 12\nheads = 2\nencoder_layers = 2\ndecoder_layers = 3\nmax_length = 8\n"
             "dropout = 0.2\nattention_dropout = 0.1\n" +
                 keys,
             "test")
      .model;
}

Pack pack_for_gathering() {
  std::vector<Sample> const pairs{{0, {5, 6, 7}, {8, 9}}, {1, {4}, {7, 7, 10, 3}}};
  return make_pack(pairs, test_ids);
}

struct Trained {
  std::vector<double> gradients;
  double loss = 0;
  std::int64_t uses = 0;
};

Trained train_once(ModelConfig const& config, bool elsewhere) {
  TestModel test(config, {11, 11, true}, DType::float32);
  Pack const pack = pack_for_gathering();
  LayerContext context = test.bench.context(pack, true);
  std::optional<ValuesElsewhere> values;
  if (elsewhere) {
    context.parameter_use = &values.emplace(test.bench.parameters());
  }
  test.bench.zero_gradients();
  double const loss = test.model.forward_backward(context, {0.1, 0.5}).smoothed;
  EXPECT_FALSE(elsewhere && values->in_use());
  return {testing_support::values(test.bench.parameters().gradients()), loss, elsewhere ? values->uses() : 0};
}

/// Sublayers of the model, and its stacks.
std::pair<std::int64_t, std::int64_t> count_sublayers(ModelConfig const& config) {
  ModelDescription const description = description_of(config);
  std::int64_t sublayers = 0;
  for (std::int64_t layer = 0; layer < description.layers(); ++layer) {
    sublayers += std::ssize(description.layer(layer).sublayers);
  }
  return {sublayers, std::ssize(description.stacks)};
}

class ParameterUseTest : public testing::TestWithParam<std::tuple<char const*, char const*, char const*>> {};

TEST_P(ParameterUseTest, ValuesMayBeAnywhereBetweenUses) {
  auto const [norm, recompute, keys] = GetParam();
  ModelConfig const config =
      gathered_model(fmt::format("norm = \"{}\"\nrecompute = \"{}\"\n{}", norm, recompute, keys));
  Trained const plain = train_once(config, false);
  Trained const gathered = train_once(config, true);
  EXPECT_EQ(gathered.gradients, plain.gradients);
  EXPECT_EQ(gathered.loss, plain.loss);
  auto const [sublayers, stacks] = count_sublayers(config);
  bool const before = config.norm == NormPlacement::pre || config.norm == NormPlacement::both;
  std::int64_t const pass = sublayers + stacks * (before ? 2 : 1);
  std::int64_t const output = 1;
  EXPECT_EQ(gathered.uses, 2 * pass + output + (config.recompute == Recompute::layer ? sublayers : 0));
}

INSTANTIATE_TEST_SUITE_P(
    Models, ParameterUseTest,
    testing::Combine(testing::Values("post", "pre", "both", "output"), testing::Values("none", "attention", "layer"),
                     testing::Values("", "stacks = [\"decoder\"]\npositions = \"relative_buckets\"\nmax_distance = 40",
                                     "positions = \"learned\"\ntie_embeddings = false\noutput_bias = true\n"
                                     "output_transform = true\ntoken_types = 2\n"
                                     "embedding_norm = true\n[model.decoder]\nself_attention = { query_key_norm = "
                                     "true }")));

TEST(ParameterUse, EndsWhenAPassThrows) {
  TestModel test(gathered_model("stacks = [\"encoder\"]"), {11, 11, true}, DType::float32);
  ValuesElsewhere values(test.bench.parameters());
  Pack const pack = pack_for_gathering();  // without tokens to predict for the source
  LayerContext context = test.bench.context(pack);
  context.parameter_use = &values;
  EXPECT_THROW(test.model.forward(context, 0), Error);
  EXPECT_FALSE(values.in_use());
  EXPECT_EQ(values.uses(), 1 + 4 + 1);
}

}  // namespace
}  // namespace heddle
