#pragma once

#include <heddle/core/layers/registry.hpp>

namespace heddle {

void register_built_in_layers(LayerRegistry& registry);

}  // namespace heddle
