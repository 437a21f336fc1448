#pragma once

#include <heddle/core/layers/registry.hpp>

namespace heddle {

/// Registers self_attention, cross_attention and feed_forward.
void register_built_in_layers(LayerRegistry& registry);

}  // namespace heddle
