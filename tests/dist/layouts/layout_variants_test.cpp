#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/operations/attention_score.hpp>

#include "layout_run.hpp"
#include "test.hpp"

namespace heddle {
namespace {

// The layouts test trains models of these kinds: every option that a built-in layer declares, and every kind of
// positions, norm and feed-forward layer, is in at least one of them.

using Features = std::set<std::string>;

/// "self_attention.score = linear" for a choice, "self_attention.window" for another option.
std::string feature_of(std::string const& option, OptionValue const& value) {
  std::string const* const text = std::get_if<std::string>(&value);
  return text == nullptr ? option : fmt::format("{} = {}", option, *text);
}

void add_features(Variant const& variant, Features& features) {
  ModelConfig const model = config_of(variant, Layout{}).model;
  features.insert(fmt::format("positions = {}", name_of(model.positions)));
  features.insert(fmt::format("position_layout = {}", name_of(model.position_layout)));
  features.insert(fmt::format("norm = {}", name_of(model.norm)));
  features.insert(fmt::format("norm_kind = {}", model.norm_kind));
  features.insert(fmt::format("activation = {}", model.activation));
  features.insert(fmt::format("recompute = {}", name_of(model.recompute)));
  features.insert(fmt::format("tie_embeddings = {}", model.tie_embeddings));
  features.insert(fmt::format("output_bias = {}", model.output_bias));
  features.insert(fmt::format("output_transform = {}", model.output_transform));
  features.insert(fmt::format("token_types = {}", model.token_types > 0));
  features.insert(fmt::format("biases = {}", model.biases));
  features.insert(fmt::format("embedding_norm = {}", model.embedding_norm));
  for (StackConfig const& stack : {model.encoder, model.decoder}) {
    for (auto const& [key, setting] : stack.settings) {
      features.insert(feature_of(key, setting.value));
    }
    for (LayerOverride const& some : stack.overrides) {
      for (auto const& [key, setting] : some.settings) {
        features.insert(feature_of(key, setting.value));
      }
    }
  }
}

Features trained_features() {
  // Defaults that need not be given.
  Features features{"self_attention.score = scaled_dot_product", "cross_attention.score = scaled_dot_product",
                    "self_attention.mask = causal", "self_attention.mask = bidirectional"};
  for (auto const& variants : {all_variants(), other_variants()}) {
    for (Variant const& variant : variants) {
      add_features(variant, features);
    }
  }
  return features;
}

TEST(LayoutVariants, EveryOptionOfABuiltInLayerIsTrained) {
  Features const trained = trained_features();
  std::vector<std::string> const scores(built_in_scores.begin(), built_in_scores.end());
  LayerRegistry layers;
  register_built_in_layers(layers);
  int options = 0;
  for (LayerRegistry::Entry const& layer : layers.entries()) {
    for (OptionDescription const& option : layer.traits.options) {
      std::string const key = fmt::format("{}.{}", layer.name, option.name);
      auto const& choices = option.name == "score" ? scores : option.choices;  // plug-ins have others
      if (choices.empty()) {
        EXPECT_TRUE(std::ranges::any_of(trained, [&](std::string const& each) {
          return (each + " ").starts_with(key + " ");
        })) << key;
        ++options;
      }
      for (std::string const& choice : choices) {
        EXPECT_TRUE(trained.contains(feature_of(key, choice))) << key << " = " << choice;
        ++options;
      }
    }
  }
  EXPECT_GE(options, 15);
}

TEST(LayoutVariants, EveryKindOfPartIsTrained) {
  Features const trained = trained_features();
  for (std::string_view const positions : value_names<Positions>) {
    EXPECT_TRUE(trained.contains(fmt::format("positions = {}", positions))) << positions;
  }
  for (char const* const feature : {"position_layout = interleaved",
                                    "position_layout = halves",
                                    "norm = post",
                                    "norm = pre",
                                    "norm = both",
                                    "norm = output",
                                    "d_model",
                                    "norm_kind = layer",
                                    "norm_kind = rms",
                                    "embedding_norm = true",
                                    "activation = relu",
                                    "activation = gelu",
                                    "activation = gelu_tanh",
                                    "activation = silu",
                                    "activation = swiglu",
                                    "activation = geglu",
                                    "biases = false",
                                    "tie_embeddings = true",
                                    "tie_embeddings = false",
                                    "output_bias = true",
                                    "output_transform = true",
                                    "token_types = true",
                                    "recompute = none",
                                    "recompute = attention",
                                    "recompute = layer"}) {
    EXPECT_TRUE(trained.contains(feature)) << feature;
  }
}

}  // namespace
}  // namespace heddle
