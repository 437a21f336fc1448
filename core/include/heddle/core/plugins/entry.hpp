#pragma once

#include <heddle/core/base/compiled_abi_tag.hpp>
#include <heddle/core/layers/registries.hpp>
#include <string>

/// Include this in the source of a plug-in, which ends with HEDDLE_PLUGIN(its_register_function).

extern "C" {
/// The tag that the plug-in was compiled with.
char const* heddle_plugin_abi_tag();
/// Adds the plug-in's kernels, layers, tasks, schedules and metrics.
void heddle_plugin_register(heddle::Registries& registries);
}

/// Defines both entry points; `register_function` takes a heddle::Registries&.
#define HEDDLE_PLUGIN(register_function)                                                                  \
  extern "C" [[gnu::visibility("default")]] char const* heddle_plugin_abi_tag() {                         \
    static std::string const tag = heddle::plugin::compiled_abi_tag();                                    \
    return tag.c_str();                                                                                   \
  }                                                                                                       \
  extern "C" [[gnu::visibility("default")]] void heddle_plugin_register(heddle::Registries& registries) { \
    register_function(registries);                                                                        \
  }
