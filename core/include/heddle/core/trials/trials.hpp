#pragma once

#include <functional>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/trial.hpp>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// Adds the trials of Heddle's own operations.
void add_built_in_trials(KernelRegistries& registries);

/// Adds trials of an activation function, plain and with a gate, to the operation "activation".
/// `definition` is the function itself, which the outputs are compared with; null where `reference` supports it.
void add_activation_trials(KernelRegistries& registries, std::string const& function,
                           std::function<double(double)> const& definition = {});

/// Adds trials of a kind of norm, with and without residual sum, dropout and bias, to "residual_norm".
/// `definition` gives a row normalized, before weight and bias; null where `reference` supports the kind.
using NormDefinition = std::function<std::vector<double>(std::span<double const> row, double epsilon)>;
void add_norm_trials(KernelRegistries& registries, std::string const& kind, NormDefinition const& definition = {});

}  // namespace heddle
