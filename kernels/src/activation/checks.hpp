#pragma once

#include <heddle/core/operations/activation.hpp>
#include <string_view>

namespace heddle::kernels {

inline bool is_built_in_activation(std::string_view function) {
  return function == "relu" || function == "gelu" || function == "gelu_tanh" || function == "silu";
}

/// Throws if the tensors of a backward call do not have the input's dtype and shape.
inline void require_activation_gradients(ActivationCall const& call, Tensor const& grad_output,
                                         ActivationGradients const& gradients) {
  grad_output.require(call.input.dtype(), call.input.shape(), "an activation's grad_output");
  gradients.input.require(call.input.dtype(), call.input.shape(), "an activation's grad_input");
  if (!call.gate.empty()) {
    call.gate.require(call.input.dtype(), call.input.shape(), "an activation's gate");
    gradients.gate.require(call.input.dtype(), call.input.shape(), "an activation's grad_gate");
  }
}

}  // namespace heddle::kernels
