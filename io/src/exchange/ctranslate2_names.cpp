#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <heddle/core/attention/attention_core.hpp>
#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/base/error.hpp>
#include <optional>

#include "exchange/ctranslate2_file.hpp"
#include "families/family_tables.hpp"

namespace heddle {

namespace {

using Rules = TensorRules;

/// The activations that CTranslate2 has, by its numbers.
constexpr std::array<std::string_view, 4> numbered_activations{"relu", "gelu_tanh", "silu", "gelu"};

/// A projection; its weight and its bias are one of `parts` equal pieces of CTranslate2's.
void add_projection(Rules& rules, std::string const& theirs, std::string const& ours, int part = 0, int parts = 1) {
  for (std::string const kind : {".weight", ".bias"}) {
    rules.push_back({theirs + "/" + kind.substr(1), ours + kind, {.part = part, .parts = parts}});
  }
}

void add_norm(Rules& rules, std::string const& theirs, std::string const& ours) {
  rules.push_back({theirs + "/gamma", ours + ".weight"});
  rules.push_back({theirs + "/beta", ours + ".bias"});
}

void add_stack(Rules& rules, std::string const& stack) {
  std::string const ours = stack + ".layers.{}.";
  std::string const theirs = stack + "/layer_{}/";
  for (int part = 0; part < 3; ++part) {
    char const* const name = std::array{"q", "k", "v"}.at(static_cast<std::size_t>(part));
    add_projection(rules, theirs + "self_attention/linear_0", ours + "self_attention." + name, part, 3);
  }
  add_projection(rules, theirs + "self_attention/linear_1", ours + "self_attention.out");
  add_norm(rules, theirs + "self_attention/layer_norm", ours + "self_attention.norm");
  add_norm(rules, theirs + "self_attention/q_norm", ours + "self_attention.q_norm");
  add_norm(rules, theirs + "self_attention/k_norm", ours + "self_attention.k_norm");
  add_projection(rules, theirs + "attention/linear_0", ours + "cross_attention.q");
  add_projection(rules, theirs + "attention/linear_1", ours + "cross_attention.k", 0, 2);
  add_projection(rules, theirs + "attention/linear_1", ours + "cross_attention.v", 1, 2);
  add_projection(rules, theirs + "attention/linear_2", ours + "cross_attention.out");
  add_norm(rules, theirs + "attention/layer_norm", ours + "cross_attention.norm");
  for (std::string const kind : {".weight", ".bias"}) {
    std::string const end = "/" + kind.substr(1);
    rules.push_back({theirs + "ffn/linear_0" + end, ours + "feed_forward.gate" + kind});
    rules.push_back({theirs + "ffn/linear_0" + end, ours + "feed_forward.up" + kind, {}, plain});
    rules.push_back({theirs + "ffn/linear_0_noact" + end, ours + "feed_forward.up" + kind, {}, gated});
  }
  add_projection(rules, theirs + "ffn/linear_1", ours + "feed_forward.down");
  add_norm(rules, theirs + "ffn/layer_norm", ours + "feed_forward.norm");
  add_norm(rules, stack + "/layer_norm", stack + ".norm");
  add_norm(rules, stack + "/layernorm_embedding", stack + ".embedding_norm");
  rules.push_back({stack + "/position_encodings/encodings", stack + ".positions.weight"});
  rules.push_back({stack + "/layer_0/self_attention/relative_attention_bias",
                   stack + ".attention_bias.weight",
                   {.transposed = true}});
}

template <class Number>
Attribute attribute(VariableType type, Number value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return {type, std::move(bytes)};
}
Attribute flag(bool value) {
  return attribute(VariableType::int8, static_cast<std::int8_t>(value));
}

/// Nothing for an activation that CTranslate2 does not have.
std::optional<std::int8_t> number_of_activation(std::string_view name) {
  for (ActivationFunction const& function : activation_functions) {
    if (function.name == name || function.gated == name) {
      return static_cast<std::int8_t>(std::ranges::find(numbered_activations, function.name) -
                                      numbered_activations.begin());
    }
  }
  return std::nullopt;
}

/// The attributes by which rotary positions are scaled; their names of the kinds are numbers.
void add_rotary_scaling(ModelConfig const& model, std::function<void(char const*, Attribute)> const& add) {
  bool const llama3 = model.rotary_scaling == RotaryScaling::llama3;
  auto const number = [](double value) { return attribute(VariableType::float32, static_cast<float>(value)); };
  add("rotary_scaling_type", attribute(VariableType::int8, static_cast<std::int8_t>(llama3 ? 2 : 0)));
  add("rotary_scaling_factor", number(model.rotary_factor));
  if (llama3) {
    std::int64_t const length = model.rotary_original_length > 0 ? model.rotary_original_length : model.max_length;
    add("rotary_low_freq_factor", number(model.rotary_low_turns));
    add("rotary_high_freq_factor", number(model.rotary_high_turns));
    add("original_max_position_embeddings", attribute(VariableType::int32, static_cast<std::int32_t>(length)));
  }
}

/// The attributes of one kind of attention in all layers of a stack.
void add_attention_attributes(std::map<std::string, Attribute>& attributes, ModelConfig const& model,
                              StackKind const& kind, std::string const& sublayer) {
  std::string const stack(kind.name);
  LayerOptions const options = layer_options(model.*kind.config, stack, -1, sublayer);
  AttentionSizes const sizes = attention_sizes(layer_config(model, kind.config, -1), options);
  bool const own = sublayer == "self_attention";
  for (std::int64_t layer = 0; layer < (model.*kind.config).layers; ++layer) {
    std::string const name = fmt::format("{}/layer_{}/{}/", stack, layer, own ? sublayer : "attention");
    auto const add = [&](char const* key, Attribute value) { attributes[name + key] = std::move(value); };
    if (options.text("score", "scaled_dot_product") == "dot_product") {
      add("queries_scale", attribute(VariableType::float32, 1.0F));
    }
    if (options.has("head_dim")) {
      add("head_dim", attribute(VariableType::int32, static_cast<std::int32_t>(sizes.head_dim)));
    }
    if (options.has("kv_heads")) {
      add("num_heads_kv", attribute(VariableType::int32, static_cast<std::int32_t>(sizes.kv_heads)));
    }
    if (model.positions == Positions::relative_buckets && own) {
      add("relative_attention_max_distance",
          attribute(VariableType::int32, static_cast<std::int32_t>(model.max_distance)));
    }
    if (model.positions == Positions::rotary && own) {
      add("rotary_dim", attribute(VariableType::int32, std::int32_t{0}));  // all columns of a head
      add("rotary_interleave", flag(model.position_layout == PairLayout::interleaved));
      add("rotary_base", attribute(VariableType::float32, static_cast<float>(model.rotary_base)));
      if (model.rotary_scaling != RotaryScaling::none) {
        add_rotary_scaling(model, add);
      }
    }
  }
}

/// The keys of [model] that may have any value.
constexpr std::array<std::string_view, 36> free_keys{"model.stacks",
                                                     "model.encoder_layers",
                                                     "model.decoder_layers",
                                                     "model.d_model",
                                                     "model.d_ff",
                                                     "model.encoder.d_ff",
                                                     "model.decoder.d_ff",
                                                     "model.heads",
                                                     "model.encoder.heads",
                                                     "model.decoder.heads",
                                                     "model.norm_epsilon",
                                                     "model.embedding_norm",
                                                     "model.activation",
                                                     "model.position_layout",
                                                     "model.position_frequencies",
                                                     "model.first_position",
                                                     "model.max_distance",
                                                     "model.position_buckets",
                                                     "model.rotary_base",
                                                     "model.rotary_factor",
                                                     "model.rotary_original_length",
                                                     "model.rotary_low_turns",
                                                     "model.rotary_high_turns",
                                                     "model.biases",
                                                     "model.scale_embedding",
                                                     "model.tie_embeddings",
                                                     "model.share_embeddings",
                                                     "model.output_bias",
                                                     "model.recompute",
                                                     "model.max_length",
                                                     "model.decoder.self_attention.kv_heads",
                                                     "model.decoder.self_attention.query_key_norm",
                                                     "model.decoder.self_attention.biases",
                                                     "model.encoder.self_attention.head_dim",
                                                     "model.decoder.self_attention.head_dim",
                                                     "model.decoder.cross_attention.head_dim"};

/// The values of other keys; those that are not here must have their defaults.
std::map<std::string_view, std::vector<std::string_view>> const& possible_values() {
  static std::map<std::string_view, std::vector<std::string_view>> const possible{
      {"model.decoder_sublayers", {R"(["self_attention", "feed_forward"])"}},
      {"model.norm", {"\"post\"", "\"pre\""}},
      {"model.norm_kind", {"\"layer\"", "\"rms\""}},
      {"model.positions", {"\"sinusoidal\"", "\"learned\"", "\"relative_buckets\"", "\"rotary\""}},
      {"model.rotary_scaling", {"\"linear\"", "\"llama3\""}},
      {"model.encoder.self_attention.score", {"\"dot_product\"", "\"scaled_dot_product\""}},
      {"model.decoder.self_attention.score", {"\"dot_product\"", "\"scaled_dot_product\""}},
      {"model.decoder.cross_attention.score", {"\"dot_product\"", "\"scaled_dot_product\""}}};
  return possible;
}

}  // namespace

Family const& ctranslate2_tensors() {
  static Family const family = [] {
    Rules rules{{"decoder/embeddings/weight", "embedding.weight"},
                {"encoder/embeddings_0/weight", "encoder.embedding.weight"},
                {"decoder/embeddings/weight", "decoder.embedding.weight"},
                {"decoder/projection/weight", "output.weight"},
                {"decoder/projection/bias", "output.bias"}};
    for (std::string const stack : {"encoder", "decoder"}) {
      add_stack(rules, stack);
    }
    return Family{.model_type = "ctranslate2",
                  .architecture = "TransformerSpec",
                  .settings = {},
                  .keys = {},
                  .tensors = std::move(rules)};
  }();
  return family;
}

void require_ctranslate2(Config const& config) {
  bool const alone = config.model.is_decoder_only();
  if (!alone && !config.model.is_encoder_decoder()) {
    throw ConfigError(
        "model.stacks = [\"encoder\"]: only encoder-decoder and decoder-only models can be exported to CTranslate2");
  }
  std::vector<std::string> obstacles;
  auto const add = [&](ConfigDifference const& key, std::string const& possible) {
    obstacles.push_back(fmt::format("{} = {}: {}", key.key, key.after, possible));
  };
  for (ConfigDifference const& difference : differences(Config{}, config)) {
    if (!difference.key.starts_with("model.") || is_for_training_only(difference.key)) {
      continue;
    }
    auto const limited = possible_values().find(difference.key);
    bool const is_free = std::ranges::find(free_keys, difference.key) != free_keys.end();
    // CTranslate2 has these, too, but not in the specification of encoder-decoder models that is written.
    if (!alone && (difference.key.ends_with("kv_heads") || difference.key.ends_with("query_key_norm") ||
                   difference.key.ends_with("_sublayers") || difference.after == "\"rotary\"")) {
      add(difference, "exported to CTranslate2 it is possible in decoder-only models");
    } else if (!is_free && limited == possible_values().end()) {
      add(difference, "CTranslate2 has " + (difference.before == "(not set)" ? "no such key" : difference.before));
    } else if (!is_free && std::ranges::find(limited->second, difference.after) == limited->second.end()) {
      add(difference, fmt::format("CTranslate2 has only {}", fmt::join(limited->second, ", ")));
    } else if (difference.key == "model.activation" && !number_of_activation(config.model.activation)) {
      add(difference, fmt::format("CTranslate2 has only {}", fmt::join(numbered_activations, ", ")));
    }
  }
  if (!obstacles.empty()) {
    throw ConfigError("{}", fmt::join(obstacles, "\n  "));
  }
}

std::map<std::string, Attribute> ctranslate2_attributes(ModelConfig const& model) {
  std::map<std::string, Attribute> attributes{
      {"decoder/alignment_layer", attribute(VariableType::int16, std::int16_t{-1})},
      {"decoder/alignment_heads", attribute(VariableType::int16, std::int16_t{1})},
      {"decoder/alibi", flag(false)},
      {"decoder/alibi_use_positive_positions", flag(false)},
      {"decoder/scale_alibi", flag(false)},
      {"decoder/start_from_zero_embedding", flag(false)}};
  if (model.is_encoder_decoder()) {
    attributes["encoder/embeddings_merge"] = attribute(VariableType::int8, std::int8_t{0});
    attributes["encoder/multi_query_attention"] = flag(false);
  }
  for (std::string const& stack : model.stacks) {
    StackKind const& kind = stack_kind(stack);
    ModelConfig const keys = layer_config(model, kind.config, -1);
    attributes[stack + "/num_heads"] = attribute(VariableType::int16, static_cast<std::int16_t>(keys.heads));
    attributes[stack + "/pre_norm"] = flag(model.norm == NormPlacement::pre);
    attributes[stack + "/activation"] = attribute(VariableType::int8, number_of_activation(model.activation).value());
    attributes[stack + "/scale_embeddings"] = flag(model.scale_embedding);
    for (std::string const& sublayer : (model.*kind.config).sublayers) {
      if (sublayer != "feed_forward") {
        add_attention_attributes(attributes, model, kind, sublayer);
      }
    }
  }
  return attributes;
}

}  // namespace heddle
