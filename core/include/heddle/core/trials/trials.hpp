#pragma once

#include <functional>
#include <heddle/core/operations/attention_score.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/trial.hpp>
#include <span>
#include <string>
#include <vector>

namespace heddle {

void add_built_in_trials(KernelRegistries& registries);

/// Adds trials of an activation function, plain and with a gate, to the operation "activation".
/// `definition` is the function itself, which the outputs are compared with; null where `reference` supports it.
void add_activation_trials(KernelRegistries& registries, std::string const& function,
                           std::function<double(double)> const& definition = {});

/// Adds trials of a kind of norm, with and without residual sum, dropout and bias, to "residual_norm".
/// `definition` gives a row normalized, before weight and bias; null where `reference` supports the kind.
using NormDefinition = std::function<std::vector<double>(std::span<double const> row, double epsilon)>;
void add_norm_trials(KernelRegistries& registries, std::string const& kind, NormDefinition const& definition = {});

/// Registers a function of attention's scores under its name, which the option `score` of attention layers then takes,
/// and adds trials: of the function, and of attention with it. Throws ConfigError where the name is taken.
void add_attention_score(KernelRegistries& registries, std::shared_ptr<AttentionScore> const& score);
/// The same for the class `Function` (AttentionScoreFrontEnd).
template <class Function>
void add_attention_score(KernelRegistries& registries, std::string name) {
  add_attention_score(registries, std::make_shared<AttentionScoreFrontEnd<Function>>(std::move(name)));
}

}  // namespace heddle
