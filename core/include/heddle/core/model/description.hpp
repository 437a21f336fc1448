#pragma once

#include <heddle/core/base/index_range.hpp>
#include <heddle/core/layers/registry.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// One sublayer of one layer: its name in the configuration and its entry in the layer registry.
struct SublayerDescription {
  std::string name;  ///< in the registry, and part of its parameters' names
  std::string path;  ///< "decoder.layers.0.self_attention": what its parameters' names begin with
  std::shared_ptr<ModelConfig const> keys;  ///< its layer's
  LayerOptions options;
  LayerTraits traits;
  Side side = Side::source;  ///< the stack's side

  Cost cost(LayerLoad const& load) const;
  /// The reason, with the layer and the key, why it does not support this use; null where it does.
  std::optional<std::string> unsupported_reason(LayerUse const& use) const;
};

/// One layer: its keys and its sublayers in order.
struct LayerDescription {
  std::shared_ptr<ModelConfig const> keys;  ///< [model], resolved for this layer
  std::vector<SublayerDescription> sublayers;
  /// The first layer of the stack, counted from 0, that has its parameters: itself, or the one that it is tied to.
  std::int64_t owner = 0;

  /// Whether the layer's backward pass computes this sublayer's activations again.
  bool recomputes(SublayerDescription const& sublayer) const {
    return keys->recompute == Recompute::layer || (keys->recompute == Recompute::attention && sublayer.traits.attends);
  }
  /// The cost of the sublayers' forward pass, which is half that of the backward pass; recomputation counts as a third
  /// of both. Norms and residual sums are not counted.
  Cost cost(LayerLoad const& load) const;
  /// Whether one of its sublayers takes positions (LayerTraits).
  bool takes_positions() const;
};

/// The input of a stack: its name in the configuration and its entry among the registered inputs.
struct InputDescription {
  std::string name;
  LayerOptions options;
  InputTraits traits;
};

/// A sequence of layers over one side's tokens: one of stack_kinds. With its setting `tied_layers` = [1, 1, 2, 2] the
/// first two layers have the parameters that are called after layer 1, the others those called after layer 2 (Marian's
/// --transformer-tied-layers).
struct StackDescription {
  std::string name;
  Side side = Side::source;
  std::optional<Side> encoder_side;         ///< the side of the stack before this one; none for the first
  std::shared_ptr<ModelConfig const> keys;  ///< [model] as it holds for the stack itself
  InputDescription input;
  std::vector<LayerDescription> layers;

  std::int64_t count() const { return static_cast<std::int64_t>(layers.size()); }
};

/// Describes the input and the layers of a stack. Throws ConfigError, naming file, line and key, for an option that an
/// input or a layer does not declare or a wrong value, and for one that is not registered.
StackDescription describe_stack(ModelConfig const& model, StackKind const& kind, LayerRegistry const& registry);

/// A model: stacks of layers, one after another. Each stack but the first has the output of the one before it as its
/// encoder output; the last gives the logits. All layers are one list, in this order, by which a pipeline is cut.
struct ModelDescription {
  ModelConfig keys;
  std::vector<StackDescription> stacks;

  std::int64_t layers() const;
  /// The range of a stack's layers in the one list.
  IndexRange range(std::size_t stack) const;
  /// The layers of `part` that are a stack's, counted from the stack's first.
  IndexRange range_in(std::size_t stack, IndexRange const& part) const;
  /// True if `part` has a stack's entry (its embedding), or its exit. A stack without layers belongs to the layer that
  /// follows it, or to the last one.
  bool has_entry(std::size_t stack, IndexRange const& part) const;
  bool has_exit(std::size_t stack, IndexRange const& part) const;
  LayerDescription const& layer(std::int64_t index) const;
  /// Whether layers before `index`, a layer of the one list, are tied to some at or after it.
  bool divides_tied_layers(std::int64_t index) const;

  /// The reason, with layer and key, why a layer does not support this use; null where all do.
  std::optional<std::string> unsupported_reason(LayerUse const& use) const { return unsupported_reason(use, use); }
  /// The same where the stacks before the last one are used in another way.
  std::optional<std::string> unsupported_reason(LayerUse const& of_encoder, LayerUse const& of_last) const;
  /// The grid of a stack.
  Grid grid(std::size_t stack) const { return stack + 1 < stacks.size() ? Grid::encoder : Grid::decoder; }
  /// Whether a layer needs samples with prefixes.
  bool needs_prefixes() const { return !unsupported_reason({}) && unsupported_reason({.prefixes = false}); }
  /// The fields of samples besides token ids that its layers read in training.
  SampleFields fields() const;
  /// The reason, with layer and key, why the model cannot be trained; null where it can.
  std::optional<std::string> untrainable_reason() const;
  /// The reason, with the layer or the key, why the model cannot generate text token by token; null where it can.
  std::optional<std::string> no_generation_reason() const;

  /// "the encoder's 6 and the decoder's 6 layers".
  std::string describe() const;
};

/// The one place that knows which stacks are possible: the encoder over the source, the decoder over the target, as
/// model.stacks lists them. Throws as describe_stack does.
ModelDescription describe_model(ModelConfig const& model, LayerRegistry const& registry);

/// The reason why the model cannot translate: it cannot generate, or has no source to translate from; null where it
/// can.
std::optional<std::string> no_translation_reason(ModelDescription const& model);

/// Throws ConfigError where the model cannot translate. `wanted_by` begins the message: the key or the command that
/// asks for translations. `fix`, which says what would help, ends it: "; or …".
void require_translation(ModelDescription const& model, std::string const& wanted_by, std::string const& fix = "");

}  // namespace heddle
