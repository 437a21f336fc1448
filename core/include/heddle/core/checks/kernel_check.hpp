#pragma once

#include <heddle/core/checks/result.hpp>
#include <heddle/core/operations/registry.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Runs every trial of the operation that the implementation supports, in every dtype, and compares outputs and
/// gradients with those of `reference` in float64 (trial.hpp). Where `reference` does not support the problem, or is
/// the implementation itself, the oracle is the implementation in float64, whose gradients are compared with central
/// differences: a result of its own. An implementation that supports no trial has one result, which was not run.
/// Nothing is thrown for an implementation that throws: that is a fault, too. Throws ConfigError for a name that is not
/// registered.
std::vector<CheckResult> check_kernel(KernelRegistries const& registries, std::string_view operation,
                                      std::string_view implementation, Execution& execution);

}  // namespace heddle
