#pragma once

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
  Side side = Side::source;  ///< of its stack

  Cost cost(LayerLoad const& load) const;
  /// The reason why it cannot be used in this way, with the layer and the key; "" if it can.
  std::string refusal(LayerUse const& use) const;
};

/// One layer: its keys and its sublayers in order.
struct LayerDescription {
  std::shared_ptr<ModelConfig const> keys;  ///< [model], resolved for this layer
  std::vector<SublayerDescription> sublayers;

  /// Whether the layer's backward pass computes this sublayer's activations again.
  bool recomputes(SublayerDescription const& sublayer) const;
  /// The cost of the sublayers' forward pass, which is half that of the backward pass; recomputation counts as a third
  /// of both. Norms and residual sums are not counted.
  Cost cost(LayerLoad const& load) const;
  /// Whether one of its sublayers takes positions (LayerTraits).
  bool takes_positions() const;
};

/// A sequence of layers over one side's tokens: one of stack_kinds.
struct StackDescription {
  std::string name;
  Side side = Side::source;
  std::optional<Side> encoder_side;         ///< the side of the stack before this one; none for the first
  std::shared_ptr<ModelConfig const> keys;  ///< [model] as it holds for the stack itself
  std::vector<LayerDescription> layers;

  std::int64_t count() const { return static_cast<std::int64_t>(layers.size()); }
};

/// Describes the layers of a stack. Throws ConfigError, naming file, line and key, for an option that a layer does not
/// declare or a wrong value, and for a layer that is not registered.
StackDescription describe_stack(ModelConfig const& model, StackKind const& kind, LayerRegistry const& registry);

}  // namespace heddle
