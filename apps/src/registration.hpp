#pragma once

#include <heddle/core/base/cpu_level.hpp>
#include <heddle/core/layers/registries.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Registers the built-in kernels, for that instruction set, and layers, then those of the plug-ins, in order; a
/// library named twice is loaded once. Throws ConfigError if one cannot be loaded.
void register_everything(std::vector<std::string> const& plugins, Registries& registries,
                         CpuLevel level = usable_cpu_level());

}  // namespace heddle
