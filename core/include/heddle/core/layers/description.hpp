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
  LayerOptions options;
  LayerCapabilities capabilities;
  std::int64_t multiplications = 0;  ///< see LayerTraits
};

/// One layer: its keys and its sublayers in order.
struct LayerDescription {
  std::shared_ptr<ModelConfig const> keys;  ///< [model], resolved for this layer
  std::vector<SublayerDescription> sublayers;

  std::int64_t multiplications() const;
};

/// A sequence of layers over one side's tokens: "encoder" or "decoder".
struct StackDescription {
  std::string name;
  Side side = Side::source;
  std::optional<Side> memory_side;  ///< that of the stack before this one; none where this is the first
  std::vector<LayerDescription> layers;

  std::int64_t count() const { return static_cast<std::int64_t>(layers.size()); }
};

/// Describes the layers of a stack. Throws ConfigError, naming file, line and key, for an option that a layer does not
/// declare or a wrong value, and for a layer that is not registered.
StackDescription describe_stack(ModelConfig const& model, StackConfig ModelConfig::*stack, std::string const& name,
                                Side side, LayerRegistry const& registry);

}  // namespace heddle
