#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace heddle {

/// A built-in activation function. Its arithmetic is in kernels/src/activation/functions.hpp.
struct ActivationFunction {
  std::string_view name;   ///< a value of model.activation
  std::string_view gated;  ///< the value of model.activation for a gated feed-forward sublayer with it (Shazeer 2020)
};
/// The only list of their names: the configuration, messages, trials and kernels take them from here.
inline constexpr std::array activation_functions{
    ActivationFunction{"relu", "reglu"},            // max(x, 0): Nair & Hinton 2010
    ActivationFunction{"gelu", "geglu"},            // x Φ(x), with erf: Hendrycks & Gimpel 2016
    ActivationFunction{"gelu_tanh", "geglu_tanh"},  // its approximation with tanh
    ActivationFunction{"silu", "swiglu"},           // x / (1 + exp(-x)): Elfwing et al. 2017
    ActivationFunction{"sigmoid", "glu"}};          // 1 / (1 + exp(-x)); gated: Dauphin et al. 2017

constexpr bool is_built_in_activation(std::string_view name) {
  return std::ranges::find(activation_functions, name, &ActivationFunction::name) != activation_functions.end();
}

/// Whether model.activation = `name` is a function with a gate, which needs no kernel of that name.
constexpr bool is_gated_activation(std::string_view name) {
  return std::ranges::find(activation_functions, name, &ActivationFunction::gated) != activation_functions.end();
}

/// The function of model.activation = `name`, which may be gated.
constexpr std::string_view function_of_activation(std::string_view name) {
  auto const found = std::ranges::find(activation_functions, name, &ActivationFunction::gated);
  return found == activation_functions.end() ? name : found->name;
}

/// "relu, gelu, …", of the plain or of the gated names.
inline std::string names_of_activations(std::string_view ActivationFunction::*kind = &ActivationFunction::name) {
  std::string names;
  for (ActivationFunction const& function : activation_functions) {
    names.append(names.empty() ? "" : ", ").append(function.*kind);
  }
  return names;
}

/// The values of model.activation, for help and pages.
inline std::string const& activation_help() {
  static std::string const help =
      names_of_activations() + "; gated: " + names_of_activations(&ActivationFunction::gated) + "; a plug-in's";
  return help;
}

}  // namespace heddle
