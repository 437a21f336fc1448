#pragma once

#include <array>
#include <heddle/core/base/dtype.hpp>
#include <heddle/core/layers/registries.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// The tolerance of an implementation in this dtype against the float64 oracle: |actual - expected| ≤ tolerance * (1 +
/// |expected|). An exact result differs by its rounding; a quantised one by what the trials' operands, of absolute
/// value up to 1, lose with 7 bits and a sign.
constexpr double tolerance(DType dtype, Accuracy accuracy = Accuracy::rounded) {
  constexpr std::array<double, 4> exact{1.2e-7, 4e-3, 0, 1e-11};
  constexpr std::array<double, 4> rounded{2e-5, 2e-2, 0, 1e-11};
  auto const index = static_cast<std::size_t>(dtype);
  return accuracy == Accuracy::exact ? exact[index] : accuracy == Accuracy::rounded ? rounded[index] : 0.1;
}

/// The tolerance of a float64 gradient against central differences, in the same form.
constexpr double difference_tolerance = 1e-7;

/// One check of an implementation or of a layer.
struct CheckResult {
  std::string operation;       ///< "layer" for a layer
  std::string implementation;  ///< or the layer's name
  std::string origin;          ///< "built-in" or the plug-in's path
  std::string problem;         ///< its description
  double output_error = 0;     ///< the largest |actual - expected| / (1 + |expected|)
  double gradient_error = 0;   ///< the largest error of a gradient, in the same form
  double tolerance = 0;        ///< the limit for both errors
  std::string fault = {};      ///< what is wrong, "" if nothing is
  std::string not_run = {};    ///< the reason why nothing was checked, "" if something was

  bool passed() const { return fault.empty() && not_run.empty(); }
};

/// The first that is wrong; null if none is.
CheckResult const* first_fault(std::vector<CheckResult> const& results);

/// "the implementation 'mine' of operation 'gemm'", "the layer 'mine'": for messages.
std::string subject(CheckResult const& result);

/// "the implementation 'mine' of operation 'gemm' is wrong: 3 x 5, float32: output: …", or "… was not checked: …": for
/// messages about a result that did not pass.
std::string describe(CheckResult const& result);

/// Runs every trial of the operation that the implementation supports, in every dtype, and compares outputs and
/// gradients with those of `reference` in float64 (trial.hpp). Where `reference` does not support the problem, or is
/// the implementation itself, the oracle is the implementation in float64, whose gradients are compared with central
/// differences: a result of its own. An implementation that supports no trial has one result, which was not run.
/// Nothing is thrown for an implementation that throws: that is a fault, too. Throws ConfigError for a name that is not
/// registered.
std::vector<CheckResult> check_kernel(KernelRegistries const& registries, std::string_view operation,
                                      std::string_view implementation, Execution& execution);

/// Checks a layer in float64, with `reference` wherever it supports a problem, in every trial that its traits declare
/// and on each side of a model that it can be built for: the gradients of the input, of the encoder output and of every
/// parameter against central differences of forward, with dropout; and, where the layer declares that it decodes, that
/// decoding token by token, also when others enter and one is copied, gives what forward does. A layer that throws has
/// a fault. Throws ConfigError for a name that is not registered.
std::vector<CheckResult> check_layer(Registries const& registries, std::string const& name, Execution& execution);

/// Checks every implementation and then every layer (check_kernel, check_layer).
std::vector<CheckResult> check_all(Registries const& registries, Execution& execution);
/// Checks what `origin` ("built-in" or a plug-in's path) has registered; none if it has registered nothing.
std::vector<CheckResult> check_origin(Registries const& registries, std::string const& origin, Execution& execution);
/// Checks what is called `name`: an operation (all its implementations), an implementation (of each operation that has
/// one), a layer, "OPERATION.IMPLEMENTATION", or an origin; none of an origin with tasks and inputs only. Throws
/// ConfigError, which lists the names, if nothing is called so.
std::vector<CheckResult> check_named(Registries const& registries, std::string const& name, Execution& execution);

}  // namespace heddle
