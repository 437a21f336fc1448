#pragma once

#include <array>
#include <boost/json/fwd.hpp>
#include <functional>
#include <heddle/core/base/activation_functions.hpp>
#include <heddle/io/families/family.hpp>
#include <string>
#include <vector>

// The rows that tables of families share. One table for each family: all that a new one needs, if the layers can
// compute its models. A row of `keys` without a key of ours names values that the layers can compute; a model with
// another value is refused.

namespace heddle {

using TensorRules = std::vector<TensorRule>;
using ProjectionNames = std::array<std::string, 4>;  ///< queries, keys, values, output

/// The tables of most decoder-only models.
inline constexpr TableNames causal_tables{.shared = "model.embed_tokens.weight", .output = "lm_head.weight"};

std::vector<Family> encoder_decoder_families();
std::vector<Family> layer_norm_families();
std::vector<Family> decoder_families();
std::vector<Family> encoder_families();
std::vector<Family> gemma_families();

/// Keys of config.json that say what only the tensors do. complete_config sets them, and an export does not write them.
inline constexpr char const* separate_tables_key = "heddle.separate_tables";
inline constexpr char const* shared_inputs_key = "heddle.shared_inputs";  ///< unless output and inputs are one
inline constexpr char const* positions_key = "heddle.positions";
inline constexpr char const* feed_forward_key = "heddle.d_ff";

inline std::int64_t head_width(ModelConfig const& model) {
  return model.d_model / model.heads;
}
inline std::string columns_of_head(ModelConfig const& model) {
  return std::to_string(head_width(model));
}
inline std::string all_heads(ModelConfig const& model) {
  return std::to_string(model.heads);
}
inline bool gated(ModelConfig const& model) {
  return is_gated_activation(model.activation);
}
inline bool plain(ModelConfig const& model) {
  return !gated(model);
}
inline bool is_scaled(ModelConfig const& model) {
  return model.rotary_scaling != RotaryScaling::none;
}
inline bool never(ModelConfig const& /*model*/) {
  return false;
}
inline bool tied(ModelConfig const& model) {
  return model.tie_embeddings;
}
inline bool untied(ModelConfig const& model) {
  return !tied(model);
}

/// Adds the tables of tokens of a model with this one stack, or of one with both (""), which complete_config finds out.
void add_tables(TensorRules& rules, TableNames const& names, std::string const& stack = "");
/// Sets a key of config.json that is ours: "heddle.KEY".
void set_own_key(boost::json::object& config, std::string_view key, boost::json::value value);
/// Adds a projection or a norm.
void add(TensorRules& rules, std::string const& theirs, std::string const& ours, TensorChange const& change = {});
/// Adds the four projections of an attention.
void add_attention(TensorRules& rules, std::string const& theirs, std::string const& ours,
                   ProjectionNames const& names);
/// Adds a gated feed-forward sublayer with Llama's names.
void add_gated_feed_forward(TensorRules& rules, std::string const& theirs, std::string const& ours);
/// A key that must have this value, which models without the key have, too.
KeyRule fixed(std::string theirs, std::string_view value);
/// The activations of feed-forward sublayers without a gate.
std::vector<KeyRule::Value> plain_activations();
/// The base of rotary positions and their scaling, also where transformers 5 has them.
std::vector<KeyRule> rotary_keys();
/// The number of layers at a key, `absent` where there is no integer, at most max_foreign_layers.
std::int64_t layers_at(boost::json::object const& config, char const* key, std::int64_t absent);
/// Lists the layers that have a window, unless the list "layer_types" is there.
void set_layer_types(boost::json::object& config, std::int64_t usual_layers,
                     std::function<bool(std::int64_t layer)> const& has_window);
inline constexpr std::int64_t max_foreign_layers = 4096;

}  // namespace heddle
