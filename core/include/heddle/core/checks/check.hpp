#pragma once

#include <heddle/core/checks/result.hpp>
#include <heddle/core/layers/registries.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Checks every implementation and layer (check_kernel, check_layer), those of the operations first.
std::vector<CheckResult> check_all(Registries const& registries, Execution& execution);
/// Those that `origin` ("built-in" or a plug-in's path) has registered; none if it has registered nothing.
std::vector<CheckResult> check_origin(Registries const& registries, std::string const& origin, Execution& execution);
/// Those called `name`: an operation (all its implementations), an implementation (of each operation that has one), a
/// layer, "OPERATION.IMPLEMENTATION", or an origin. Throws ConfigError, which lists the names, if there is none.
std::vector<CheckResult> check_named(Registries const& registries, std::string const& name, Execution& execution);

}  // namespace heddle
