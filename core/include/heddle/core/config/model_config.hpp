#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/base/enumerations.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/base/norm_kind.hpp>
#include <heddle/core/config/options.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Where a sublayer's norms stand: on the residual sum (Vaswani et al. 2017), before the branch (Xiong et al. 2020), or
/// before the branch and on its output, before the residual sum (Ding et al. 2021: sandwich), or only on its output
/// (Liu et al. 2022; OLMo 2).
enum class NormPlacement : std::uint8_t { post, pre, both, output };
template <>
inline constexpr std::array<std::string_view, 4> value_names<NormPlacement>{"post", "pre", "both", "output"};

enum class Positions : std::uint8_t { sinusoidal, learned, none, rotary, relative, relative_buckets, alibi };
template <>
inline constexpr std::array<std::string_view, 7> value_names<Positions>{
    "sinusoidal", "learned", "none", "rotary", "relative", "relative_buckets", "alibi"};

/// The frequencies of sinusoidal positions in d columns, for pair i: `paper` 10000^(-2 i / d) (Vaswani et al. 2017),
/// `tensor2tensor` 10000^(-i / (d / 2 - 1)); `automatic` is `paper` for interleaved columns, else `tensor2tensor`.
enum class PositionFrequencies : std::uint8_t { automatic, paper, tensor2tensor };
template <>
inline constexpr std::array<std::string_view, 3> value_names<PositionFrequencies>{"auto", "paper", "tensor2tensor"};

/// The way in which the frequencies of rotary positions are lowered, so that a model serves longer texts than those of
/// model.rotary_original_length that it was first trained with; attention_positions.cpp has the formulas. `linear`:
/// Chen et al. 2023; `llama3`: Llama 3.1; `yarn`: Peng et al. 2024.
enum class RotaryScaling : std::uint8_t { none, linear, llama3, yarn };
template <>
inline constexpr std::array<std::string_view, 4> value_names<RotaryScaling>{"none", "linear", "llama3", "yarn"};

/// The activations that a layer's backward pass computes again instead of keeping them (Chen et al. 2016): none, those
/// of its attention sublayers, or all except the layer's input.
enum class Recompute : std::uint8_t { none, attention, layer };
template <>
inline constexpr std::array<std::string_view, 3> value_names<Recompute>{"none", "attention", "layer"};

/// Keys of some layers of a stack: `[model.STACK.layer."4-6"]`.
struct LayerOverride {
  IndexRange layers;      ///< counted from 0, where the file counts from 1
  Settings settings;      ///< settings named as in StackConfig, and "sublayers"
  std::string name = {};  ///< the range as it was given, "4-6", for messages; not part of its value

  bool operator==(LayerOverride const& other) const { return layers == other.layers && settings == other.settings; }
};

/// `[model.encoder]` or `[model.decoder]`. Settings are named like the keys of [model] that may differ between layers
/// ("activation"), or after a sublayer and its option ("self_attention.kv_heads").
struct StackConfig {
  std::int64_t layers = 6;
  std::vector<std::string> sublayers;         ///< the sublayers of each layer: names in the layer registry
  std::string input = "tokens";               ///< the name of a registered input
  Settings settings = {};                     ///< settings of all its layers, and options of its input
  std::vector<LayerOverride> overrides = {};  ///< ascending, without overlaps

  bool operator==(StackConfig const&) const = default;
};

/// The places where keys of a section were given, "run.toml:3:1: model.heads" by "heads"; not part of its value.
struct KeyLocations {
  std::string section = {};
  std::map<std::string, std::string> by_key = {};

  bool given(std::string const& key) const { return by_key.contains(key); }
  /// The start of a message about a key: the place and the name that were given, or "model.heads" if it was not given.
  std::string of(std::string const& key) const;

  bool operator==(KeyLocations const&) const { return true; }
};

/// The names of an adapter's parameters: those of a projection, and one of these.
inline constexpr std::array<char const*, 2> adapter_suffixes{".lora_a", ".lora_b"};

/// `[adapter]`: low-rank adapters of a model's projections (Hu et al. 2021), beside which everything else is frozen.
struct AdapterConfig {
  std::int64_t rank = 0;  ///< 0: none
  double alpha = 16;      ///< an adapter's output is multiplied by alpha / rank
  double dropout = 0;     ///< on an adapter's input
  /// Patterns of the projections that have one, "encoder.layers.0.self_attention.q".
  std::vector<std::string> targets{"*_attention.q", "*_attention.v"};
  bool save_base = true;  ///< checkpoints have the frozen parameters, too
  KeyLocations places{.section = "adapter"};

  bool operator==(AdapterConfig const&) const = default;
};

/// The parameters that no step of a run changes. parse_config takes them from the optimizer's groups and [adapter].
struct FrozenParameters {
  std::vector<std::string> frozen = {};   ///< patterns of the groups that are frozen in all steps
  std::vector<std::string> trained = {};  ///< patterns of the others that are trained; empty: all of them are
  bool rounded = false;                   ///< weights and tables among them are kept in bfloat16

  bool operator==(FrozenParameters const&) const = default;
};

struct ModelConfig {
  StackConfig encoder{.sublayers = {"self_attention", "feed_forward"}};
  StackConfig decoder{.sublayers = {"self_attention", "cross_attention", "feed_forward"}};
  std::vector<std::string> stacks{"encoder", "decoder"};  ///< the stacks of the model, in this order
  std::int64_t d_model = 512;                             ///< of one stack, in layer_config's result
  std::int64_t encoder_width = 0;  ///< in layer_config's result: columns of the encoder output; 0: d_model
  std::int64_t d_ff = 2048;
  std::int64_t heads = 8;
  NormPlacement norm = NormPlacement::post;
  std::string norm_kind{NormKind::layer};  ///< any kind that a residual_norm kernel supports
  double norm_epsilon = 1e-5;              ///< added to the variance, or to the mean square
  bool embedding_norm = false;
  std::int64_t token_types = 0;     ///< rows of a table of token types; 0: no table
  std::string activation = "relu";  ///< any function an activation kernel supports
  Positions positions = Positions::sinusoidal;
  PairLayout position_layout = PairLayout::interleaved;  ///< pairs of columns in sinusoidal and rotary positions
  PositionFrequencies position_frequencies = PositionFrequencies::automatic;
  std::int64_t first_position = 0;  ///< sinusoidal position of a sequence's first token
  double rotary_base = 10000;
  RotaryScaling rotary_scaling = RotaryScaling::none;
  double rotary_factor = 1;                 ///< frequencies are divided by it where they are scaled
  std::int64_t rotary_original_length = 0;  ///< 0: max_length
  double rotary_low_turns = 1;              ///< pairs with fewer turns in that length are scaled (llama3, yarn)
  double rotary_high_turns = 32;            ///< pairs with more turns in that length are not
  std::int64_t max_distance = 128;          ///< maximum relative distance, with buckets or without
  std::int64_t position_buckets = 32;       ///< number of ranges of distances in relative_buckets
  bool biases = true;
  bool scale_embedding = true;
  bool tie_embeddings = true;
  bool share_embeddings = false;     ///< one table for all inputs, also if the output has its own
  bool separate_embeddings = false;  ///< one table for each stack, also of a joint vocabulary
  bool output_transform = false;     ///< a projection, an activation and a norm before the output projection
  bool output_bias = false;
  double logit_cap = 0;  ///< above 0: logits z become logit_cap * tanh(z / logit_cap)
  double dropout = 0.1;
  double attention_dropout = 0.0;
  double activation_dropout = 0.0;
  Recompute recompute = Recompute::none;
  std::int64_t max_length = 1024;  ///< tokens, with the end token
  AdapterConfig adapter;           ///< a section of its own
  FrozenParameters frozen;         ///< follows from other sections
  KeyLocations places{.section = "model"};

  /// The place of a key for messages, as KeyLocations::of gives it; in layer_config's result of that layer's key
  /// ("--set …: model.decoder.layer.4-6.heads").
  std::string place(std::string const& key) const { return places.of(key); }

  /// The three kinds of models by their stacks; an encoder-only model is neither of these.
  bool is_encoder_decoder() const { return stacks.size() > 1; }
  bool is_decoder_only() const { return stacks == std::vector<std::string>{"decoder"}; }

  std::int64_t encoder_columns() const { return encoder_width > 0 ? encoder_width : d_model; }

  bool operator==(ModelConfig const&) const = default;
};

using StackMember = StackConfig ModelConfig::*;

/// A stack that a model may have.
struct StackKind {
  std::string_view name;
  StackMember config;
  bool predicts;  ///< its tokens are the target's, which the model predicts; else the source's
};

/// All kinds of stacks in the order in which a model has them: the one list of them.
inline constexpr std::array stack_kinds{StackKind{"encoder", &ModelConfig::encoder, false},
                                        StackKind{"decoder", &ModelConfig::decoder, true}};

/// Throws Error for a name that is not in stack_kinds.
StackKind const& stack_kind(std::string_view name);

/// The keys of one layer, resolved: [model], then the stack's settings, then those of the range that has the layer
/// (`layer` counts from 0; -1 stands for the stack itself, which is in no range), and encoder_width of the stack before
/// it. Its `sublayers` are those of `stack` in the result, with place("sublayers"); its sublayers' options are
/// layer_options. Throws ConfigError with the setting's origin for a wrong value.
ModelConfig layer_config(ModelConfig const& model, StackMember stack, std::int64_t layer);

/// The options of one sublayer of a layer, resolved in the same order. `stack_name` is for messages.
LayerOptions layer_options(StackConfig const& stack, std::string const& stack_name, std::int64_t layer,
                           std::string const& sublayer);

/// Leaves each stack one layer without settings of its own, if it has such layers, and one of each range with some: all
/// that differs between layers.
void keep_one_of_each_kind(ModelConfig& model);

/// The places of keys that were given for a stack that model.stacks does not name.
std::vector<std::string> places_of_absent_stacks(ModelConfig const& model);

}  // namespace heddle
