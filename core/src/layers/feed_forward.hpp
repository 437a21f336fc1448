#pragma once

#include <heddle/core/layers/layer.hpp>
#include <heddle/core/operations/activation.hpp>
#include <memory>
#include <string>

namespace heddle {

/// The activation's function, and whether it is gated, by the name that model.activation gives.
ActivationProblem activation_problem(DType dtype, std::string const& name);

/// Selects the kernel. A function that no implementation has is an error of the layer's key; a wrong choice of the
/// implementation is one of kernels.activation.
std::shared_ptr<Activation> select_activation(LayerSpec const& spec, ActivationProblem const& problem);

/// The layer feed_forward with model.d_ff columns.
std::unique_ptr<Layer> make_feed_forward(LayerSpec const& spec);

}  // namespace heddle
