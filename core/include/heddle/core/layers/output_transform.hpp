#pragma once

#include <heddle/core/layers/linear.hpp>
#include <heddle/core/layers/norm.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <string>

namespace heddle {

/// norm(activation(W x + b)) of the stream before the output projection (Devlin et al. 2019): `output.transform.weight`
/// [d_model, d_model] and `.bias`, then `output.norm`. The activation is the function of model.activation without its
/// gate. Every tensor rank has all of it and does its rows of the stream; nothing is collective.
class OutputTransform {
 public:
  explicit OutputTransform(LayerSpec const& spec);

  struct Activations {
    Tensor input;
    Tensor projected;
    Tensor activated;
    Norm::Activations norm;
  };
  /// x [rows, d_model] → the same shape, from the arena.
  Tensor forward(LayerContext& context, Tensor const& x, Activations& activations) const;
  /// Overwrites `grad`, the gradient of forward's result, with its input's gradient; parameter gradients +=. The model
  /// part reports when they are done.
  void backward(LayerContext& context, Tensor const& grad, Activations const& activations) const;

 private:
  std::string function_;
  Linear projection_;
  std::shared_ptr<Activation> activation_;
  Norm norm_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
