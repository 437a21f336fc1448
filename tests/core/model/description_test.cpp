#include <heddle/core/config/config.hpp>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/model/model.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

constexpr VocabularySizes vocabulary{11, 11, true};

ModelConfig small_model(std::vector<std::string> stacks) {
  Config config = parse_config(
      "[model]\nencoder_layers = 2\ndecoder_layers = 2\nd_model = 8\nd_ff = 12\nheads = 2\n"
      "max_length = 8\ndropout = 0.0\nstacks = " +
          to_toml(OptionValue(std::move(stacks))),
      "test");
  return config.model;
}

Pack small_pack() {
  std::vector<Sample> const pairs{{0, {5, 9, 3}, {7, 4}}, {1, {8}, {10, 6, 6}}};
  Pack pack = make_pack(pairs, test_ids);
  pack.source_output = {pack.source.id};  // as an encoder that reconstructs its input
  return pack;
}

/// The gradient of every parameter equals central differences of the loss at some of its elements.
void expect_gradients(TestModel& test, LayerContext& context) {
  auto const loss = [&] { return test.model.forward(context, 0).smoothed; };
  test.bench.zero_gradients();
  test.model.forward_backward(context, {0, 1});
  for (Parameter const& parameter : test.bench.parameters().all()) {
    std::vector<double> const gradient = heddle::values(parameter.gradient);
    std::vector<double> values = heddle::values(parameter.value);
    for (std::size_t element = 0; element < values.size(); element += 1 + values.size() / 3) {
      double const step = 1e-5;
      double const before = values[element];
      auto const loss_at = [&](double value) {
        values[element] = value;
        copy_from_doubles(parameter.value, values);
        test.bench.parameters().bump_versions();
        return loss();
      };
      double const slope = (loss_at(before + step) - loss_at(before - step)) / (2 * step);
      loss_at(before);
      EXPECT_NEAR(gradient[element], slope, 1e-6) << parameter.spec.name << " element " << element;
    }
  }
}

class StacksTest : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(StacksTest, GradientsEqualCentralDifferences) {
  TestModel test(small_model(GetParam()), vocabulary, DType::float64);
  Pack const pack = small_pack();
  LayerContext context = test.bench.context(pack);
  expect_gradients(test, context);
  for (Parameter const& parameter : test.bench.parameters().all()) {
    bool const shared = parameter.spec.name == "embedding.weight";
    EXPECT_TRUE(shared || GetParam().size() == 2 || parameter.spec.name.starts_with(GetParam().front() + "."))
        << parameter.spec.name;
  }
}

TEST_P(StacksTest, AnEmptyStackIsItsEmbedding) {
  ModelConfig config = small_model(GetParam());
  config.norm = NormPlacement::pre;
  (GetParam().back() == "decoder" ? config.encoder : config.decoder).layers = 0;
  TestModel test(config, vocabulary, DType::float64);
  Pack const pack = small_pack();
  LayerContext context = test.bench.context(pack);
  expect_gradients(test, context);
}

INSTANTIATE_TEST_SUITE_P(Models, StacksTest,
                         testing::Values(std::vector<std::string>{"encoder", "decoder"},
                                         std::vector<std::string>{"encoder"}, std::vector<std::string>{"decoder"}));

TEST(Description, AnEncoderNeedsToKnowWhatToPredict) {
  TestModel test(small_model({"encoder"}), vocabulary, DType::float64);
  Pack pack = small_pack();
  pack.source_output = {};
  LayerContext context = test.bench.context(pack);
  expect_error([&] { test.model.forward(context, 0); }, "no tokens to predict");
}

TEST(Description, ADecoderByItselfHasNoCrossAttention) {
  ModelConfig config = small_model({"decoder"});
  config.decoder.sublayers = {"self_attention", "cross_attention"};
  expect_config_error([&] { TestModel(config, vocabulary, DType::float64); },
                      "model.decoder_sublayers names cross_attention, but");
}

TEST(Description, LayersMayHaveTheirOwnSizes) {
  ModelConfig config = small_model({"encoder", "decoder"});
  config.decoder.overrides = {{{1, 2},
                               {{"d_ff", {std::int64_t{20}, "test"}},
                                {"activation", {std::string("gelu"), "test"}},
                                {"self_attention.head_dim", {std::int64_t{6}, "test"}}}}};
  TestModel test(config, vocabulary, DType::float64);
  ParameterSet const& parameters = test.bench.parameters();
  EXPECT_EQ(parameters.find("decoder.layers.0.self_attention.q.weight")->global_shape(), (Shape{8, 8}));
  EXPECT_EQ(parameters.find("decoder.layers.1.self_attention.q.weight")->global_shape(), (Shape{12, 8}));
  EXPECT_EQ(parameters.find("decoder.layers.1.self_attention.out.weight")->global_shape(), (Shape{8, 12}));
  EXPECT_EQ(parameters.find("decoder.layers.1.feed_forward.up.weight")->global_shape(), (Shape{20, 8}));
  Pack const pack = small_pack();
  LayerContext context = test.bench.context(pack);
  expect_gradients(test, context);
}

TEST(Description, HeadsMayShareKeysAndSeeAWindow) {
  ModelConfig config = small_model({"encoder", "decoder"});
  config.encoder.settings = {{"self_attention.window", {std::int64_t{1}, "test"}}};
  config.decoder.settings = {{"self_attention.kv_heads", {std::int64_t{1}, "test"}},
                             {"self_attention.window", {std::int64_t{1}, "test"}},
                             {"cross_attention.kv_heads", {std::int64_t{1}, "test"}}};
  TestModel test(config, vocabulary, DType::float64);
  ParameterSet const& parameters = test.bench.parameters();
  EXPECT_EQ(parameters.find("decoder.layers.0.self_attention.q.weight")->global_shape(), (Shape{8, 8}));
  EXPECT_EQ(parameters.find("decoder.layers.0.self_attention.k.weight")->global_shape(), (Shape{4, 8}));
  EXPECT_EQ(parameters.find("decoder.layers.1.cross_attention.v.bias")->global_shape(), (Shape{4}));
  Pack const pack = small_pack();
  LayerContext context = test.bench.context(pack);
  expect_gradients(test, context);
}

TEST(Description, OptionsThatALayerDoesNotDeclareAreRefusedWithTheirPlace) {
  auto const described = [](std::string const& toml) {
    return [=] { description_of(parse_config(toml, "run.toml").model); };
  };
  expect_config_error(described("[model.decoder.layer.\"4-6\"]\nself_attention = { heds = 2 }"),
                      "run.toml:2:20: there is no option "
                      "model.decoder.layer.4-6.self_attention.heds; expected one of: "
                      "kv_heads, head_dim, query_key_norm, joint_query_key_norm, biases, "
                      "score, soft_cap, mask, window, block, global_tokens");
  expect_config_error(described("[model.decoder.layer.\"4-6\"]\nself_attention = { heads = 2 }"),
                      "there is no option model.decoder.layer.4-6.self_attention.heads; "
                      "heads is a key of the whole layer: model.decoder.layer.4-6.heads");
  expect_config_error(described("[model.decoder]\nself_attention = { head_dim = 0 }"),
                      "model.decoder.self_attention.head_dim is the integer 0; expected an "
                      "integer, 1 to 65536");
  expect_config_error(described("[model.decoder]\nself_attention = { mask = \"full\" }"),
                      "expected \"causal\" or \"bidirectional\" or \"prefix\"");
  expect_config_error(described("[model.decoder]\nfeed_forward = { width = 2 }"), "this layer takes none");
  expect_config_error(described("[model.encoder]\ncross_attention = { head_dim = 2 }"),
                      "run.toml:2:21: cross_attention.head_dim is an option of "
                      "cross_attention, which the encoder does not have");
  expect_config_error(
      described("[model.decoder.layer.\"2-3\"]\nsublayers = [\"self_attention\"]\ncross_attention = { head_dim = 2 }"),
      "which layers 2-3 of the decoder do not have");
  expect_config_error(described("[model.decoder]\nheads = 7"),
                      "run.toml:2:1: model.decoder.heads = 7 does not divide model.d_model = 512; "
                      "heads may be 1, 2, 4, 8, 16, 32, 64, 128, 256 and 512, or any "
                      "number where the layer's attention has a head_dim");
  expect_config_error(described("[model]\nd_model = 18"),
                      "run.toml:2:1: model.d_model = 18 is not a multiple of model.heads = 8; "
                      "heads may be 1, 2, 3, 6, 9 and 18");
  expect_config_error(described("[model]\nd_model = 18\nheads = 4"),
                      "run.toml:3:1: model.heads = 4 does not divide model.d_model = 18");
  EXPECT_NO_THROW(
      described("[model]\nheads = 7\n[model.encoder]\nself_attention = { head_dim = 4 }\n[model.decoder]\n"
                "self_attention = { head_dim = 4 }\ncross_attention = { head_dim = 4 }")());
  expect_config_error(described("[model.decoder]\nself_attention = { kv_heads = 3 }"),
                      "model.decoder.self_attention.kv_heads = 3 does not divide the 8");
}

TEST(Description, ErrorsOfALayerNameItsKeyAndPlace) {
  auto const built = [](std::vector<std::string> const& overrides) {
    ModelConfig config = parse_config(
                             "[model]\nd_model = 8\nheads = 2\nd_ff = 12\nencoder_layers = 2\n"
                             "decoder_layers = 2\nmax_length = 8\n",
                             "run.toml", overrides)
                             .model;
    return [=] { TestModel(config, vocabulary, DType::float64, KernelChoices()); };
  };
  auto const refusal = [&](std::string const& override) { return message_of<ConfigError>(built({override})); };
  EXPECT_THAT(refusal("model.decoder.layer.1-2.activation=swish"),
              StartsWith("--set model.decoder.layer.1-2.activation=swish: model.decoder.layer.1-2.activation: no "
                         "implementation of operation 'activation' supports the function 'swish' in float64"));
  EXPECT_THAT(refusal("model.d_model=9"), StartsWith("--set model.d_model=9: model.d_model = 9 is not a multiple of "
                                                     "model.heads = 2; heads may be 1, 3 and 9"));
  EXPECT_THAT(refusal("model.heads=3"),
              StartsWith("--set model.heads=3: model.heads = 3 does not divide model.d_model = 8; "
                         "heads may be 1, 2, 4 and 8"));
  EXPECT_THAT(refusal("model.encoder.layer.1.sublayers=[\"self_atention\"]"),
              StartsWith("--set model.encoder.layer.1.sublayers=[\"self_atention\"]: model.encoder.layer.1.sublayers: "
                         "there is no layer \"self_atention\"; did you mean self_attention?"));
  EXPECT_THAT(
      refusal("model.encoder_sublayers=[\"pool\"]"),
      StartsWith("--set model.encoder_sublayers=[\"pool\"]: model.encoder_sublayers: there is no layer "
                 "\"pool\"; expected one of: self_attention, cross_attention, ssru, average_attention, feed_forward, "
                 "mixture_of_experts, or a layer of a plug-in in plugins.paths"));
  EXPECT_THAT(refusal("model.encoder.layer.1.sublayers=[\"cross_attention\"]"),
              StartsWith("--set model.encoder.layer.1.sublayers=[\"cross_attention\"]: model.encoder.layer.1.sublayers "
                         "names cross_attention, but this stack has nothing to attend to besides itself"));
}

TEST(Description, CostsAreTheLayersOwn) {
  LayerRegistry layers;
  register_built_in_layers(layers);
  layers.add("dear", [](LayerSpec const&) -> std::unique_ptr<Layer> { return nullptr; },
             {.cost = [](ModelConfig const& keys, LayerOptions const&, LayerLoad const& load) {
               return load.tokens * Cost{1000.0 * static_cast<double>(keys.d_model), 7};
             }});
  ModelConfig config = small_model({"encoder", "decoder"});
  config.encoder.sublayers = {"self_attention", "dear"};
  ModelDescription const model = describe_model(config, layers);
  EXPECT_EQ(model.layer(0).cost({}).operations, 2 * 4 * 8 * 8 + 8000);
  EXPECT_EQ(model.layer(2).cost({}).operations, 2 * (2 * 4 * 8 * 8 + 2 * 8 * 12));
  // Scores of 10 tokens: q kᵀ and weights v. In the encoder they see 5 keys each; in the decoder 1 to 5 of their own
  // sequence, and 5 of the memory.
  LayerLoad const load{.tokens = 10, .sequence = 5};
  EXPECT_EQ(model.layer(0).cost(load).operations, 10 * (2 * 4 * 8 * 8 + 8000) + 4 * 10 * 5 * 8);
  EXPECT_EQ(model.layer(2).cost(load).operations, 10 * 2 * (2 * 4 * 8 * 8 + 2 * 8 * 12) + 4 * 10 * (3 + 5) * 8);
}

// A frozen weight has two of a product's three in training; an adapter adds products with its two matrices.
TEST(Description, CostsKnowFrozenWeightsAndAdapters) {
  auto const cost = [](std::string const& keys, std::int64_t layer) {
    Config const config = parse_config(
        "[model]\nencoder_layers = 1\ndecoder_layers = 1\nd_model = 8\nd_ff = 12\nheads = 2\n" + keys, "test");
    return description_of(config.model).layer(layer).cost({}).operations;
  };
  double const attention = 2 * 4 * 8 * 8;
  double const feed_forward = 2 * 2 * 8 * 12;
  std::string const still = "[optimizer.group.still]\nfrozen = true\nparameters = ";
  EXPECT_EQ(cost("", 0), attention + feed_forward);
  EXPECT_DOUBLE_EQ(cost(still + "[\"encoder.*\"]", 0), (attention + feed_forward) * 2 / 3);
  EXPECT_EQ(cost(still + "[\"encoder.*\"]", 1), 2 * attention + feed_forward);
  EXPECT_DOUBLE_EQ(cost(still + "[\"*.up.*\", \"*.k.weight\"]", 0), attention * 11 / 12 + feed_forward * 5 / 6);
  double const adapters = 2 * (2 * (8 * 3 + 3 * 8) + (8 * 3 + 3 * 12));
  EXPECT_DOUBLE_EQ(cost("[adapter]\nrank = 3\ntargets = [\"*.q\", \"*.out\", \"*.up\"]", 0),
                   (attention + feed_forward) * 2 / 3 + adapters);
  EXPECT_DOUBLE_EQ(cost("activation = \"swiglu\"\n[adapter]\nrank = 3\ntargets = [\"*.gate\"]", 0),
                   (attention + feed_forward * 3 / 2) * 2 / 3 + 2 * (8 * 3 + 3 * 12));
}

// The pairs that a mask's definition gives, counted one by one.
TEST(Description, TheCostOfAttentionIsThatOfThePairsThatSeeEachOther) {
  constexpr int length = 9;
  using Sees = std::function<bool(int query, int key)>;
  auto const check = [&](std::string const& stack, std::string const& options, Sees const& sees) {
    int pairs = 0;
    for (int query = 0; query < length; ++query) {
      for (int key = 0; key < length; ++key) {
        pairs += sees(query, key) ? 1 : 0;
      }
    }
    ModelConfig const config = parse_config("[model]\nd_model = 8\nheads = 2\nstacks = [\"" + stack + "\"]\n[model." +
                                                stack + "]\nself_attention = { " + options + " }",
                                            "test")
                                   .model;
    SublayerDescription const attention = description_of(config).layer(0).sublayers[0];
    double const scores = attention.cost({.tokens = 3 * length, .sequence = length}).operations -
                          attention.cost({.tokens = 3 * length}).operations;
    EXPECT_DOUBLE_EQ(scores, 4.0 * 3 * pairs * 8) << stack << ", " << options;
  };
  auto const distance = [](int query, int key) { return std::abs(query - key); };
  check("encoder", "", [](int, int) { return true; });
  check("decoder", "", [](int query, int key) { return key <= query; });
  check("encoder", "mask = \"causal\"", [](int query, int key) { return key <= query; });
  check("encoder", "window = 2", [&](int query, int key) { return distance(query, key) <= 2; });
  check("decoder", "window = 2", [&](int query, int key) { return key <= query && query - key <= 2; });
  check("decoder", "window = 1, block = 2",
        [&](int query, int key) { return key <= query && query / 2 - key / 2 <= 1; });
  check("encoder", "window = 1, global_tokens = 2",
        [&](int query, int key) { return distance(query, key) <= 1 || query < 2 || key < 2; });
  check("decoder", "window = 1, global_tokens = 2",
        [&](int query, int key) { return key <= query && (query - key <= 1 || key < 2); });
  check("encoder", "window = 1, block = 3, global_tokens = 1",
        [&](int query, int key) { return distance(query / 3, key / 3) <= 1 || query < 1 || key < 1; });
  check("encoder", "window = 100, global_tokens = 100", [](int, int) { return true; });
}

TEST(Description, BytesCountParametersOnceAndTokensEach) {
  ModelDescription const model = description_of(small_model({"encoder"}));
  Cost const one = model.layer(0).cost({.tokens = 1});
  Cost const two = model.layer(0).cost({.tokens = 2});
  double const weights = 4.0 * (4 * 8 * 8 + 2 * 8 * 12);
  EXPECT_EQ(2 * (one.bytes - weights), two.bytes - weights);
  EXPECT_LT(model.layer(0).cost({.tokens = 2, .dtype = DType::bfloat16}).bytes, two.bytes);
}

TEST(Description, MasksThatShowWhatIsPredictedAreRefused) {
  auto const refused = [](std::vector<std::string> const& stacks, std::string const& mask) {
    ModelConfig config = small_model(stacks);
    (stacks.back() == "decoder" ? config.decoder : config.encoder).settings = {
        {"self_attention.mask", {mask, "run.toml:4:1"}}};
    ModelDescription const model = description_of(config);
    EXPECT_EQ(model.needs_prefixes(), mask == "prefix");
    return model.untrainable_reason().value_or("");
  };
  std::string const key = "run.toml:4:1: model.decoder.self_attention.mask = ";
  EXPECT_THAT(refused({"decoder"}, "bidirectional"),
              StartsWith(key + "\"bidirectional\": a decoder's tokens would see"));
  EXPECT_THAT(refused({"encoder", "decoder"}, "bidirectional"), StartsWith(key));
  EXPECT_EQ(refused({"encoder"}, "bidirectional"), "");
  EXPECT_EQ(refused({"decoder"}, "prefix"), "");
  EXPECT_THAT(refused({"encoder", "decoder"}, "prefix"), StartsWith(key + "\"prefix\": only a decoder-only model"));
  expect_contains(refused({"encoder"}, "prefix"), "model.encoder.self_attention.mask = \"prefix\"");
}

TEST(Description, WhatCannotGenerateIsNamed) {
  LayerRegistry layers;
  register_built_in_layers(layers);
  layers.add("blind", [](LayerSpec const&) -> std::unique_ptr<Layer> { return nullptr; },
             {.capabilities = {.decode = false, .devices = false}});
  auto const refused = [&](std::vector<std::string> const& stacks, Settings const& decoder = {}) {
    ModelConfig config = small_model(stacks);
    config.decoder.settings = decoder;
    return describe_model(config, layers).no_generation_reason().value_or("");
  };
  EXPECT_EQ(refused({"encoder", "decoder"}), "");
  EXPECT_EQ(refused({"decoder"}), "");
  expect_contains(refused({"encoder"}), "model.stacks = [\"encoder\"] has no decoder");
  EXPECT_THAT(
      refused({"decoder"}, {{"self_attention.mask", {std::string("bidirectional"), "run.toml:4:1"}}}),
      AllOf(StartsWith("run.toml:4:1: model.decoder.self_attention.mask = \"bidirectional\": tokens that see those "
                       "after them"),
            HasSubstr("(decoder.layers.0.self_attention)")));
  ModelConfig config = small_model({"encoder", "decoder"});
  config.encoder.sublayers = {"self_attention", "blind"};
  EXPECT_FALSE(describe_model(config, layers).no_generation_reason()) << "encoders compute whole sentences";
  config.decoder.sublayers = {"self_attention", "blind"};
  ModelDescription const model = describe_model(config, layers);
  EXPECT_EQ(model.no_generation_reason(),
            "model.decoder_sublayers: the layer blind (decoder.layers.0.blind) does not declare support for "
            "generation, token by token");
  expect_config_error([&] { require_translation(model, "train.validate_bleu = true"); },
                      "train.validate_bleu = true needs a model that translates: "
                      "model.decoder_sublayers: the layer blind");
  expect_config_error([&] { require_translation(description_of(small_model({"decoder"})), "this command"); },
                      "has no encoder");
  EXPECT_FALSE(model.unsupported_reason({}));
  EXPECT_EQ(model.unsupported_reason({.devices = true}),
            "model.encoder_sublayers: the layer blind (encoder.layers.0.blind) does not declare support for "
            "kernels that run on a device");
}

TEST(Description, AStackWithoutLayersHasTheOptionsOfItsSublayers) {
  auto const described = [](std::string const& options) {
    return [=] {
      description_of(parse_config("[model]\nencoder_layers = 0\n[model.encoder]\n" + options, "run.toml").model);
    };
  };
  EXPECT_NO_THROW(described("self_attention = { kv_heads = 2 }")());
  expect_config_error(described("cross_attention = { head_dim = 2 }"), "which the encoder does not have");
  expect_config_error(described("self_attention = { heds = 2 }"),
                      "there is no option model.encoder.self_attention.heds");
  EXPECT_NO_THROW(described("sublayers = [\"cross_attention\"]\ncross_attention = { head_dim = 2 }")());
}

}  // namespace
}  // namespace heddle
