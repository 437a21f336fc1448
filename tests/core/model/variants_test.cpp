#include <heddle/core/attention/attention_positions.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/token_embedding.hpp>
#include <heddle/core/model/model.hpp>
#include <heddle/core/operations/attention.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"
#include "test_scores.hpp"

namespace heddle {
namespace {

constexpr VocabularySizes vocabulary{11, 11, true};
constexpr double smoothing = 0.1;

/// Tables of the scores that the test bench has, where kernels can call them.
constexpr char const* plugin_scores = scores_run
                                          ? "[model.decoder]\nself_attention = { score = \"logistic\" }\n"
                                            "cross_attention = { score = \"cubic\" }\n"
                                            "[model.encoder]\nself_attention = { score = \"logistic\", window = 1 }"
                                          : "";

ModelConfig small_model(std::string const& keys = "", std::string const& tables = "") {
  return parse_config(
             "[model]\nencoder_layers = 2\ndecoder_layers = 2\nd_model = 8\nd_ff = 12\nheads = 2\n"
             "max_length = 8\ndropout = 0.2\nattention_dropout = 0.1\n" +
                 std::string(keys.find("max_distance") == std::string::npos ? "max_distance = 2\n" : "") + keys + "\n" +
                 tables,
             "test")
      .model;
}

Pack small_pack() {
  std::vector<Sample> const pairs{{0, {5, 9, 3}, {7, 4, 3, 8}}, {1, {8}, {10, 6, 6}}, {4, {9, 9}, {}}};
  Pack pack = make_pack(pairs, test_ids);
  pack.source_rows.prefix_length = int_tensor({2, 1, 3});
  pack.target_rows.prefix_length = int_tensor({3, 0, 1});
  return pack;
}

/// The gradient of every parameter equals central differences of the loss.
void expect_gradients(TestModel& test, Pack const& pack) {
  LayerContext context = test.bench.context(pack, true);
  test.bench.zero_gradients();
  test.model.forward_backward(context, {smoothing, 0.5});
  for (Parameter const& parameter : test.bench.parameters().all()) {
    expect_gradient([&] { return 0.5 * test.model.forward(context, smoothing).smoothed; }, parameter.value,
                    parameter.gradient, parameter.spec.name.c_str());
  }
}

struct Variant {
  std::string name, keys, tables;
};

class VariantsTest : public testing::TestWithParam<Variant> {};

TEST_P(VariantsTest, GradientsEqualCentralDifferences) {
  TestModel test(small_model(GetParam().keys, GetParam().tables), vocabulary, DType::float64);
  expect_gradients(test, small_pack());
}

TEST_P(VariantsTest, EveryParameterAndKeyMatters) {
  Pack const pack = small_pack();
  auto const loss = [&](ModelConfig const& config) {
    TestModel test(config, vocabulary, DType::float64);
    LayerContext context = test.bench.context(pack);
    return test.model.forward(context, smoothing).smoothed;
  };
  EXPECT_GT(std::abs(loss(small_model()) - loss(small_model(GetParam().keys, GetParam().tables))), 1e-4);
}

TEST_P(VariantsTest, TheConfigurationReadsBackUnchanged) {
  Config config;
  config.model = small_model(GetParam().keys, GetParam().tables);
  EXPECT_EQ(parse_config(to_toml(config), "printed"), config);
}

INSTANTIATE_TEST_SUITE_P(Models, VariantsTest,
                         testing::Values(Variant{"no_biases", "biases = false", ""},
                                         Variant{"biases_of_some_layers", "",
                                                 "[model.decoder.layer.2]\nbiases = false"},
                                         Variant{"no_scale", "scale_embedding = false", ""},
                                         Variant{"no_positions", "positions = \"none\"", ""},
                                         Variant{"rotary", "positions = \"rotary\"", ""},
                                         Variant{"rotary_with_few_key_heads", "positions = \"rotary\"",
                                                 "[model.decoder]\nself_attention = { kv_heads = 1, head_dim = 6 }"},
                                         Variant{"rotary_with_norms", "positions = \"rotary\"",
                                                 "[model.decoder]\nself_attention = { query_key_norm = true }"},
                                         Variant{"relative", "positions = \"relative\"", ""},
                                         Variant{"relative_buckets",
                                                 "positions = \"relative_buckets\"\nposition_buckets = 8\n"
                                                 "max_distance = 5",
                                                 ""},
                                         Variant{"alibi", "positions = \"alibi\"", ""},
                                         Variant{"sinusoids_in_halves", "position_layout = \"halves\"", ""},
                                         Variant{"rotary_in_halves",
                                                 "positions = \"rotary\"\nposition_layout = \"halves\"\n"
                                                 "rotary_base = 100.0",
                                                 ""},
                                         Variant{"swiglu", "activation = \"swiglu\"", ""},
                                         Variant{"geglu_of_some_layers", "biases = false",
                                                 "[model.decoder.layer.2]\nactivation = \"geglu\""},
                                         Variant{"biases_of_queries_keys_and_values", "biases = false",
                                                 "[model.decoder]\nself_attention = { biases = \"qkv\" }\n"
                                                 "cross_attention = { biases = \"all\" }"},
                                         Variant{"joint_norms_of_queries_and_keys", "norm_kind = \"rms\"",
                                                 "[model.decoder]\nself_attention = { joint_query_key_norm = true, "
                                                 "kv_heads = 1 }\ncross_attention = { joint_query_key_norm = true }"},
                                         Variant{"norms_of_outputs", "norm = \"output\"", ""},
                                         Variant{"capped_logits", "logit_cap = 0.7\noutput_bias = true", ""},
                                         Variant{"separate_embeddings", "separate_embeddings = true", ""},
                                         Variant{"wide_encoder", "separate_embeddings = true", "encoder.d_model = 12"},
                                         Variant{"rotary_linear",
                                                 "positions = \"rotary\"\nrotary_scaling = \"linear\"\n"
                                                 "rotary_factor = 3.0",
                                                 ""},
                                         Variant{"rotary_llama3",
                                                 "positions = \"rotary\"\nrotary_scaling = \"llama3\"\n"
                                                 "rotary_factor = 3.0\nrotary_base = 30.0\nrotary_low_turns = 0.3\n"
                                                 "rotary_high_turns = 1.5",
                                                 ""},
                                         Variant{"rotary_yarn",
                                                 "positions = \"rotary\"\nrotary_scaling = \"yarn\"\n"
                                                 "rotary_factor = 3.0\nrotary_base = 30.0\n"
                                                 "rotary_original_length = 4",
                                                 ""},
                                         Variant{"output_bias", "output_bias = true\ntie_embeddings = false", ""},
                                         Variant{"output_transform",
                                                 "output_transform = true\n"
                                                 "activation = \"gelu\"",
                                                 ""},
                                         Variant{"transform_without_gate",
                                                 "output_transform = true\n"
                                                 "activation = \"swiglu\"\nbiases = false",
                                                 ""},
                                         Variant{"token_types", "token_types = 2", ""},
                                         Variant{"types_and_positions", "token_types = 1\npositions = \"learned\"", ""},
                                         Variant{"types_alone", "token_types = 3\npositions = \"none\"", ""},
                                         Variant{"unscaled_and_capped", "",
                                                 "[model.decoder]\nself_attention = { score = \"dot_product\" }\n"
                                                 "cross_attention = { soft_cap = 0.5 }"},
                                         Variant{"additive", "",
                                                 "[model.decoder]\nself_attention = { score = \"additive\" }\n"
                                                 "cross_attention = { score = \"additive\", soft_cap = 0.8 }\n"
                                                 "[model.encoder]\nself_attention = { score = \"additive\" }"},
                                         Variant{"scores_of_plugins", "positions = \"relative\"", plugin_scores},
                                         Variant{"linear", "",
                                                 "[model.decoder]\nattention_dropout = 0.0\n"
                                                 "self_attention = { score = \"linear\" }\n"
                                                 "cross_attention = { score = \"linear\" }\n"
                                                 "[model.encoder]\nattention_dropout = 0.0\n"
                                                 "self_attention = { score = \"linear\", kv_heads = 1 }"},
                                         Variant{"blocks", "",
                                                 "[model.decoder]\nself_attention = { window = 0, block = 2 }\n"
                                                 "[model.encoder]\nself_attention = { window = 0, block = 2, "
                                                 "global_tokens = 1 }"},
                                         Variant{"prefix", "",
                                                 "[model.decoder]\nself_attention = { mask = \"prefix\" }\n"
                                                 "[model.encoder]\nself_attention = { mask = \"prefix\" }"}),
                         [](auto const& instance) { return instance.param.name; });

TEST(Variants, WithoutBiasesThereAreNoParametersOfThem) {
  TestModel test(small_model("biases = false"), vocabulary, DType::float64);
  for (Parameter const& parameter : test.bench.parameters().all()) {
    EXPECT_TRUE(!parameter.spec.name.ends_with(".bias") || parameter.spec.name.ends_with(".norm.bias"))
        << parameter.spec.name;
  }
  TestModel one(small_model("", "[model.decoder.layer.2]\nbiases = false"), vocabulary, DType::float64);
  EXPECT_NE(one.bench.parameters().find("decoder.layers.0.feed_forward.up.bias"), nullptr);
  EXPECT_EQ(one.bench.parameters().find("decoder.layers.1.feed_forward.up.bias"), nullptr);
  EXPECT_EQ(one.bench.parameters().find("decoder.layers.1.cross_attention.k.bias"), nullptr);
}

TEST(Variants, StacksOfDifferentWidthShareNoTable) {
  auto const built = [](std::string const& keys) {
    return [=] { TestModel(small_model(keys, "[model.encoder]\nd_model = 12"), vocabulary, DType::float64); };
  };
  for (char const* const keys : {"", "tie_embeddings = false\nshare_embeddings = true"}) {
    expect_config_error(built(keys), {"model.encoder.d_model = 12: the encoder cannot share the table embedding.weight "
                                      "with the decoder, whose d_model is 8",
                                      "model.separate_embeddings = true"});
  }
  TestModel test(small_model("separate_embeddings = true", "[model.encoder]\nd_model = 12"), vocabulary,
                 DType::float64);
  EXPECT_EQ(test.bench.parameters().find("encoder.embedding.weight")->global_shape(), (Shape{11, 12}));
  EXPECT_EQ(test.bench.parameters().find("decoder.embedding.weight")->global_shape(), (Shape{11, 8}));
  EXPECT_EQ(test.bench.parameters().find("decoder.layers.1.cross_attention.v.weight")->global_shape(), (Shape{8, 12}));
}

/// A second text has the second token type: its logits are those of a model with that type in place of the first.
TEST(Variants, ASecondTextHasTheSecondTokenType) {
  auto const keys = [](char const* more) {
    return small_model(std::string("stacks = [\"encoder\"]\ntoken_types = 3\n") + more);
  };
  auto const pack_of = [](std::int32_t first, std::int32_t other) {
    std::vector<TokenSequence> const sequences{{0, {5, 9, 3, 7}, {5, -1, 3, 7}, first},
                                               {4, {9, 6, 8}, {9, 6, -1}, other}};
    return make_sequence_pack(sequences, Side::source);
  };
  for (char const* const more : {"positions = \"learned\"", "positions = \"sinusoidal\"", "positions = \"none\""}) {
    TestModel test(keys(more), vocabulary, DType::float64);
    expect_gradients(test, pack_of(2, 0));
    Parameter const& types = *test.bench.parameters().find("encoder.token_types.weight");
    std::vector<double> const gradient = values(types.gradient);
    EXPECT_EQ(std::vector<double>(gradient.begin() + 16, gradient.end()), std::vector<double>(8));
    auto const logits = [&](Pack const& pack) {
      LayerContext context = test.bench.context(pack);
      return values(test.model.logits(context));
    };
    std::vector<double> const two = logits(pack_of(1, 0));
    EXPECT_GT(relative_error(two, logits(pack_of(0, 0))), 1e-3) << more;
    std::vector<double> table = values(types.value);
    std::copy_n(table.begin(), 8, table.begin() + 8);
    copy_from_doubles(types.value, table);
    test.bench.parameters().bump_versions();
    EXPECT_LE(relative_error(logits(pack_of(1, 0)), logits(pack_of(0, 0))), 1e-15) << more;
  }
}

TEST(Variants, TheScaleOfTheEmbeddingIsOneOrTheRoot) {
  ModelConfig config = small_model("positions = \"none\"");
  Pack const pack = small_pack();
  auto const embedded = [&](bool scaled) {
    config.scale_embedding = scaled;
    TestBench bench(config, DType::float64);
    Parameter& table =
        bench.parameters().reserve({"embedding.weight", {{11, 8}, Placement::sharded_along(0)}, Initializer::zeros()});
    LayerSpec spec = bench.spec("encoder", Side::source);
    spec.table = &table;
    TokenEmbedding const embedding(spec);
    bench.allocate();
    LayerContext context = bench.context(pack);
    Saved saved;
    return values(embedding.forward(context, saved));
  };
  std::vector<double> expected = embedded(false);
  for (double& value : expected) {
    value *= std::sqrt(8.0);
  }
  EXPECT_LE(relative_error(embedded(true), expected), 1e-15);
}

TEST(Variants, RelativePositionsAreOneParameterOfEachStackWithAUseForEachLayer) {
  TestModel test(small_model("positions = \"relative\""), vocabulary, DType::float64);
  for (std::string const stack : {"encoder", "decoder"}) {
    Parameter const* const bias = test.bench.parameters().find(stack + ".attention_bias.weight");
    ASSERT_NE(bias, nullptr);
    EXPECT_EQ(bias->global_shape(), (Shape{2, 5}));
    auto const& uses = test.bench.parameters().uses();
    EXPECT_EQ(std::count(uses.begin(), uses.end(), bias), 2);
  }
}

/// Biases that leave only one distance make a token attend to one other: here to itself, so that attention is a
/// product.
TEST(Variants, ARelativeBiasActsAtItsDistance) {
  ModelConfig const config = small_model("positions = \"relative\"");
  TestBench bench(config, DType::float64);
  LayerSpec spec = bench.spec("encoder", Side::source);
  spec.positions = make_attention_positions({.stack = spec, .heads = 2, .stages = {}});
  spec.name = "encoder.layers.0.self_attention";
  auto const layer = bench.registries().layers.build("self_attention", spec);
  bench.allocate();
  Pack const pack = small_pack();
  LayerContext context = bench.context(pack);
  Tensor const input = random_tensor(DType::float64, {pack.source_rows.tokens, 8}, 3);
  copy_from_doubles(bench.parameters().find("encoder.attention_bias.weight")->value,
                    {-1e9, -1e9, 0, -1e9, -1e9, -1e9, -1e9, 0, -1e9, -1e9});
  Saved saved;
  auto const output = values(layer->forward(context, {input, {}}, saved).hidden);
  auto const parameter = [&](std::string const& name) {
    return values(bench.parameters().find(spec.name + name)->value);
  };
  auto const project = [](std::vector<double> const& rows, std::vector<double> const& weight,
                          std::vector<double> const& bias) {
    std::vector<double> result;
    for (std::size_t row = 0; row < rows.size() / 8; ++row) {
      for (std::size_t j = 0; j < 8; ++j) {
        double sum = bias[j];
        for (std::size_t i = 0; i < 8; ++i) {
          sum += rows[8 * row + i] * weight[8 * j + i];
        }
        result.push_back(sum);
      }
    }
    return result;
  };
  auto const attended = project(values(input), parameter(".v.weight"), parameter(".v.bias"));
  EXPECT_LE(relative_error(output, project(attended, parameter(".out.weight"), parameter(".out.bias"))), 1e-13);
}

/// Su et al. 2021: the product of a rotated query and a rotated key depends only on the distance of their positions,
/// and at distance 0 it is what it was.
TEST(Variants, RotationsDependOnTheDistanceAlone) {
  ModelConfig config = small_model("positions = \"rotary\"");
  config.max_length = 40;
  TestBench bench(config, DType::float64);
  LayerSpec const spec = bench.spec("encoder", Side::source);
  auto const positions = make_attention_positions({.stack = spec, .heads = 2, .stages = {}});
  positions->add_layer(spec, 2, 6);
  Pack const pack;
  LayerContext context = bench.context(pack);
  Tensor const query = random_tensor(DType::float64, {1, 6}, 1);
  Tensor const key = random_tensor(DType::float64, {1, 6}, 2);
  auto const rotated = [&](Tensor const& row, std::int32_t position) {
    Tensor const copy = tensor_of(values(row), DType::float64, {1, 6});
    positions->rotate(context, copy, 6, int_tensor({position}), false);
    return copy;
  };
  auto const product = [&](std::int32_t at, std::int32_t other) {
    return weighted_sum(rotated(query, at), rotated(key, other));
  };
  EXPECT_NEAR(product(0, 0), weighted_sum(query, key), 1e-14);
  for (std::int32_t distance : {0, 1, 5, 17}) {
    EXPECT_NEAR(product(distance, 0), product(distance + 22, 22), 1e-12) << distance;
  }
  EXPECT_GT(std::abs(product(5, 0) - product(6, 0)), 1e-3);
  // The first pair turns by one radian a position.
  double const angle = 3;
  EXPECT_NEAR(values(rotated(query, 3))[0], values(query)[0] * std::cos(angle) - values(query)[1] * std::sin(angle),
              1e-14);
}

TEST(Variants, PositionsThatCannotBeAreRefused) {
  auto const built = [](std::string const& keys, std::string const& tables) {
    return [=] { TestModel(small_model(keys, tables), vocabulary, DType::float64); };
  };
  expect_config_error(built("positions = \"rotary\"", "[model.decoder]\nself_attention = { head_dim = 3 }"),
                      {"decoder.layers.0.self_attention", "model.positions", "head_dim"});
  expect_config_error(built("positions = \"relative\"", "[model.decoder.layer.2]\nheads = 4"),
                      {"decoder.layers.1.self_attention", "model.positions", "model.decoder.layer.2.heads = 4"});
  expect_config_error(built("positions = \"rotary\"\nencoder_sublayers = [\"feed_forward\"]", ""),
                      "no layer of the encoder");
  expect_config_error(built("", "[model.decoder]\nself_attention = { mask = \"prefix\", window = 2 }"),
                      "model.decoder.self_attention.window");
  expect_config_error(built("", "[model.decoder]\nself_attention = { block = 2 }"),
                      "model.decoder.self_attention.block requires `window`");
  auto const linear = [&](std::string const& keys, std::string const& others) {
    return built(keys,
                 "[model.decoder]\nattention_dropout = 0.0\nself_attention = { score = \"linear\"" + others + " }");
  };
  auto const refused = [](auto const& action, char const* with) {
    expect_config_error(action, {"test:", "self_attention.score = \"linear\"", with});
  };
  refused(linear("", ", window = 2"), "a window");
  refused(linear("", ", soft_cap = 2.0"), "soft_cap");
  refused(linear("positions = \"rotary\"", ""), "model.positions = \"rotary\"");
  expect_config_error(built("", "[model.decoder]\nself_attention = { score = \"logistc\" }"),
                      ": model.decoder.self_attention.score: there is no score "
                      "\"logistc\", built in or of a plug-in; did you mean logistic?");
  expect_config_error(built("", "[model.decoder]\nself_attention = { score = \"cubic\", soft_cap = 2.0 }"),
                      "self_attention.score = \"cubic\" cannot be combined with soft_cap");
  refused(built("", "[model.decoder]\nself_attention = { score = \"linear\" }"),
          "model.attention_dropout = 0.1; expected 0");
}

TEST(Variants, AKernelThatLacksAVariantIsRefusedWithTheLayer) {
  auto const names = TestBench(ModelConfig(), DType::float64).registries().kernels.of<Attention>().names();
  if (std::ranges::find(names, "simd") == names.end()) {
    GTEST_SKIP() << "simd attention, which lacks float64, needs AVX-512";
  }
  KernelChoices choices;
  choices.choose("attention", "simd");
  expect_config_error([&] { TestModel(small_model("positions = \"relative\""), vocabulary, DType::float64, choices); },
                      {"encoder.layers.0.self_attention", "kernels.attention", "biases"});
}

TEST(Variants, APrefixMaskNeedsThePrefixesOfTheData) {
  TestModel test(small_model("", "[model.decoder]\nself_attention = { mask = \"prefix\" }"), vocabulary,
                 DType::float64);
  Pack pack = small_pack();
  pack.target_rows.prefix_length = {};
  LayerContext context = test.bench.context(pack);
  expect_error([&] { test.model.forward(context, 0); }, "decoder.layers.0.self_attention: mask = \"prefix\", but");
}

TEST(Variants, APrefixThatIsWholeIsNoMaskAndNoneIsCausal) {
  Pack pack = small_pack();
  auto const logits = [&](std::string const& mask, std::int32_t prefix) {
    TestModel test(small_model("", "[model.decoder]\nself_attention = { mask = \"" + mask + "\" }"), vocabulary,
                   DType::float64);
    pack.target_rows.prefix_length = int_tensor({prefix, prefix, prefix});
    LayerContext context = test.bench.context(pack);
    return values(test.model.logits(context));
  };
  EXPECT_LE(relative_error(logits("prefix", 8), logits("bidirectional", 0)), 1e-14);
  EXPECT_LE(relative_error(logits("prefix", 0), logits("causal", 0)), 1e-14);
  EXPECT_GT(relative_error(logits("prefix", 2), logits("causal", 0)), 1e-4);
}

/// A window of 0 hides nothing where one block, or the global tokens, are the whole sequence.
TEST(Variants, AWindowThatShowsAllIsNoMask) {
  Pack const pack = small_pack();
  auto const logits = [&](std::string const& options) {
    TestModel test(small_model("", "[model.encoder]\nself_attention = { " + options + " }"), vocabulary,
                   DType::float64);
    LayerContext context = test.bench.context(pack);
    return values(test.model.logits(context));
  };
  auto const full = logits("mask = \"bidirectional\"");
  EXPECT_LE(relative_error(logits("window = 0, block = 64"), full), 1e-14);
  EXPECT_LE(relative_error(logits("window = 0, global_tokens = 64"), full), 1e-14);
  EXPECT_LE(relative_error(logits("window = 64"), full), 1e-14);
  EXPECT_GT(relative_error(logits("window = 0"), full), 1e-4);
  EXPECT_LE(relative_error(logits("mask = \"causal\", window = 0, block = 64"), logits("mask = \"causal\"")), 1e-14);
}

TEST(Variants, TheOutputBiasIsAddedToTheLogits) {
  ModelConfig config = small_model("output_bias = true");
  TestModel test(config, vocabulary, DType::float64);
  Parameter const* const bias = test.bench.parameters().find("output.bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(bias->global_shape(), (Shape{11}));
  Pack const pack = small_pack();
  LayerContext context = test.bench.context(pack);
  auto const with = values(test.model.logits(context));
  auto const added = values(bias->value);
  copy_from_doubles(bias->value, std::vector<double>(11));
  auto without = values(test.model.logits(context));
  for (std::size_t index = 0; index < without.size(); ++index) {
    without[index] += added[index % 11];
  }
  EXPECT_LE(relative_error(with, without), 1e-14);
}

}  // namespace
}  // namespace heddle
