#pragma once

#include <heddle/core/layers/registries.hpp>
#include <string>

namespace heddle {

struct Execution;

/// Loads the shared library at `path`, which is never unloaded, and lets it register its kernels and layers; their
/// entries' origin is `path`. Throws ConfigError that says what was wrong and what would be right: not a file, not a
/// shared library, no plug-in (an entry point is missing: see entry.hpp), another ABI tag, a name that is taken, or no
/// libheddle_checks.so in the directory of libheddle_core.so. The registries are then unchanged.
void load_plugin(std::string const& path, Registries& registries);

/// Checks every implementation and layer that the plug-in at `path` has registered (check_kernel, check_layer). Throws
/// ConfigError that names the first one that is wrong, its problem, the error found and the tolerance.
void require_checked(std::string const& path, Registries const& registries, Execution& execution);

}  // namespace heddle
