#pragma once

#include <heddle/core/checks/result.hpp>
#include <heddle/core/layers/registries.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Checks every implementation and then every layer (check_kernel, check_layer).
std::vector<CheckResult> check_all(Registries const& registries, Execution& execution);
/// Checks what `origin` ("built-in" or a plug-in's path) has registered; none if it has registered nothing.
std::vector<CheckResult> check_origin(Registries const& registries, std::string const& origin, Execution& execution);
/// Checks what is called `name`: an operation (all its implementations), an implementation (of each operation that has
/// one), a layer, "OPERATION.IMPLEMENTATION", or an origin. Throws ConfigError, which lists the names, if there is
/// none.
std::vector<CheckResult> check_named(Registries const& registries, std::string const& name, Execution& execution);

}  // namespace heddle
