#pragma once

#include <heddle/core/kernel_registry.hpp>
#include <heddle/core/layer_registry.hpp>

namespace heddle {

/// All that built-in code and plug-ins register, in one value made by `main`.
struct Registries {
  KernelRegistries kernels;
  LayerRegistry layers;
};

}  // namespace heddle
