#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/linear.hpp>
#include <heddle/core/layers/token_embedding.hpp>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/core/model/pipeline_plan.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

/// A projection of random features, the same for every pack of a size, to d_model.
class FeatureProjection final : public StackInput {
 public:
  explicit FeatureProjection(LayerSpec const& spec)
      : side_(spec.side),
        linear_(spec.named(spec.name + ".features"), {spec.options.integer("width", 4), spec.model.d_model},
                Linear::Split::none) {}

  Tensor forward(LayerContext& context, Saved& saved) const override {
    return linear_.forward(context, saved.keep(random_tensor(DType::float64, {context.pack.rows(side_).tokens, 3}, 1)));
  }
  void backward(LayerContext& context, Tensor const& grad_output, Saved const& saved) const override {
    ArenaScope const scope(context.arena);
    linear_.backward(context, grad_output, saved.get<Tensor>());
  }

 private:
  Side side_;
  Linear linear_;
};

LayerRegistry layers_with_features() {
  LayerRegistry layers;
  register_built_in_layers(layers);
  layers.inputs.add<FeatureProjection>("features",
                                       {.options = {{.name = "width", .min = 1}},
                                        .capabilities = {.sequence = false, .context = false, .decode = false}});
  return layers;
}

ModelConfig model_with_features(std::string const& keys = "") {
  return parse_config(
             "[model]\nd_model = 6\nd_ff = 8\nheads = 2\nmax_length = 8\nencoder_layers = 1\ndecoder_layers = 1\n"
             "encoder_input = \"features\"\n" +
                 keys,
             "test")
      .model;
}

struct FeatureModel {
  explicit FeatureModel(ModelConfig const& config)
      : bench(config, DType::float64),
        model(bench.spec("", Side::source), layers_with_features(), VocabularySizes{9, 9, true}) {
    bench.allocate();
    std::vector<Sample> const pairs{{4, {5, 6, 5}, {7}}, {9, {}, {4, 4, 8}}, {2, {7, 3}, {}}};
    pack = make_pack(pairs, test_ids);
  }
  LossSums forward_backward() {
    bench.zero_gradients();
    LayerContext context = bench.context(pack, true);
    return model.forward_backward(context, {0.1, 0.25});
  }
  double loss() {
    LayerContext context = bench.context(pack, true);
    return 0.25 * model.forward(context, 0.1).smoothed;
  }

  TestBench bench;
  Model model;
  Pack pack;
};

TEST(StackInput, GradientsOfAModelOfFeaturesEqualCentralDifferences) {
  for (std::string const norm : {"post", "pre"}) {
    FeatureModel test(model_with_features("norm = \"" + norm + "\"\n[model.encoder]\nfeatures = { width = 3 }"));
    test.forward_backward();
    for (Parameter const& parameter : test.bench.parameters().all()) {
      expect_gradient([&] { return test.loss(); }, parameter.value, parameter.gradient, parameter.spec.name.c_str());
    }
  }
}

TEST(StackInput, AModelOfFeaturesLearns) {
  FeatureModel test(model_with_features("dropout = 0.0\n[model.encoder]\nfeatures = { width = 3 }"));
  OptimizerConfig config;
  Optimizer const optimizer = test.bench.optimizer(config);
  double const before = test.forward_backward().smoothed;
  for (int step = 1; step <= 40; ++step) {
    test.forward_backward();
    test.bench.update(optimizer, 0.01, step);
  }
  EXPECT_LT(test.forward_backward().smoothed, before / 2);
}

std::vector<std::string> names_with(std::string const& part, ParameterSet const& parameters) {
  std::vector<std::string> names;
  for (Parameter const& parameter : parameters.all()) {
    if (parameter.spec.name.find(part) != std::string::npos) {
      names.push_back(parameter.spec.name);
    }
  }
  return names;
}

TEST(StackInput, OnlyTheStacksThatEmbedTokensShareTheTable) {
  std::string const width = "\n[model.encoder.features]\nwidth = 3";
  FeatureModel tied(model_with_features(width));
  EXPECT_EQ(names_with("embedding.weight", tied.bench.parameters()), std::vector<std::string>{"embedding.weight"});
  auto const& uses = tied.bench.parameters().uses();
  EXPECT_EQ(std::count(uses.begin(), uses.end(), tied.bench.parameters().find("embedding.weight")), 2);
  EXPECT_EQ(names_with("features", tied.bench.parameters()),
            (std::vector<std::string>{"encoder.features.weight", "encoder.features.bias"}));
  FeatureModel untied(model_with_features("tie_embeddings = false" + width));
  EXPECT_EQ(names_with("embedding.weight", untied.bench.parameters()),
            std::vector<std::string>{"decoder.embedding.weight"});

  // The first of two stages has the encoder, and no table.
  LayerRegistry const layers = layers_with_features();
  TestBench bench(model_with_features(width), DType::float64);
  LayerSpec const spec = bench.spec("", Side::source);
  PipelinePlan const plan{{{IndexRange{0, 1}}, {IndexRange{1, 2}}}};
  ModelChunk const first(spec, layers, describe_model(spec.model, layers), {9, 9, true}, plan, {0, 1});
  EXPECT_EQ(bench.parameters().find("embedding.weight"), nullptr);
  ModelChunk const second(spec, layers, describe_model(spec.model, layers), {9, 9, true}, plan, {1, 2});
  EXPECT_TRUE(bench.parameters().find("embedding.weight")->placement().stages.empty());
}

TEST(StackInput, IsNamedByTheConfiguration) {
  LayerRegistry const layers = layers_with_features();
  auto const error_of = [&](std::string const& keys, ModelConfig (*make)(std::string const&) = model_with_features) {
    try {
      describe_model(make(keys), layers);
    } catch (ConfigError const& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(ModelConfig().encoder.input, "tokens");
  EXPECT_EQ(error_of("[model.encoder]\nfeatures = { width = 3 }"), "");
  EXPECT_EQ(parse_config("[model.encoder]\ninput = \"features\"", "test").model.encoder.input, "features");
  expect_contains(error_of("decoder_input = \"token\""),
                  "model.decoder_input: there is no input \"token\"; did you mean tokens?");
  expect_contains(error_of("[model.encoder]\nfeatures = { with = 3 }"), "model.encoder.features.with");
  expect_contains(error_of("[model.decoder]\nfeatures = { width = 3 }"),
                  "is an option of features, which the decoder does not have");
  EXPECT_EQ(no_translation_reason(describe_model(model_with_features(), layers)), std::nullopt);
  EXPECT_EQ(describe_model(model_with_features(), layers).unsupported_reason({.context = 2}),
            "test:8:1: model.encoder_input: the input features of the encoder does not declare support for "
            "parallel.context = 2");
  EXPECT_EQ(describe_model(model_with_features("decoder_input = \"features\""), layers).no_generation_reason(),
            "test:9:1: model.decoder_input: the input features of the decoder does not declare support for "
            "generation, token by token");
}

TEST(StackInput, OnlyTablesOfTokensAreNotedAsTied) {
  LayerRegistry layers = layers_with_features();
  layers.inputs.add<TokenEmbedding>("other_tokens", {.embeds_tokens = true});
  auto const noted = [&](std::string const& encoder, std::string const& decoder) {
    ModelConfig model = model_with_features();
    model.encoder.input = encoder;
    model.decoder.input = decoder;
    return tied_tables(describe_model(model, layers), {9, 10, false});
  };
  expect_contains(noted("other_tokens", "other_tokens"), "model.tie_embeddings = true with separate vocab");
  EXPECT_EQ(noted("features", "tokens"), "");
  EXPECT_EQ(noted("tokens", "features"), "");
}

TEST(StackInput, TokensNeedATable) {
  TestBench bench(ModelConfig(), DType::float64);
  EXPECT_THROW(TokenEmbedding(bench.spec("encoder", Side::source)), Error);
}

}  // namespace
}  // namespace heddle
