#pragma once

#include <heddle/core/config/config.hpp>

#include "document.hpp"

namespace heddle {

/// Reads the tables of [optimizer.group], once the keys of [optimizer] are read. Throws ConfigError with file, line and
/// key for an unknown or wrong key, for a name with a dot, and for a group that names no parameters.
void read_groups(ConfigDocument const& document, OptimizerConfig& optimizer);

}  // namespace heddle
