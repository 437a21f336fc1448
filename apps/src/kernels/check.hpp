#pragma once

#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/registries.hpp>
#include <string>

namespace heddle {

/// Checks what `name` names (check_named, check_metrics), or everything if it is empty, and prints the errors: every
/// problem of a named implementation or layer; otherwise one line for each, and each problem that did not pass. Returns
/// ExitCode::bad_config if one did not. Throws ConfigError if the name is unknown.
ExitCode print_checks(Registries const& registries, std::string const& name, Execution& execution);

}  // namespace heddle
