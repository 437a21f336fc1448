#pragma once

#include <heddle/core/checks/result.hpp>
#include <heddle/core/layers/registries.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Checks a layer in float64, with `reference` wherever it supports a problem, in every trial that its traits declare
/// and on each side of a model that it can be built for: the gradients of the input, of the encoder output and of every
/// parameter against central differences of forward, with dropout; and, where the layer declares that it decodes, that
/// decoding token by token, with rows reordered on the way, gives what forward does. A layer that throws has a fault.
/// Throws ConfigError for a name that is not registered.
std::vector<CheckResult> check_layer(Registries const& registries, std::string const& name, Execution& execution);

}  // namespace heddle
