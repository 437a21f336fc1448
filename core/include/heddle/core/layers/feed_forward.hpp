#pragma once

#include <heddle/core/layers/linear.hpp>
#include <heddle/core/layers/registry.hpp>
#include <heddle/core/operations/activation.hpp>
#include <string_view>

namespace heddle {

/// Whether model.activation = `name` is a function with a gate, which needs no kernel of that name.
bool is_gated_activation(std::string_view name);

/// Computes down(dropout(activation(up(x)))) (Vaswani et al. 2017, §3.3) or, where model.activation is gated,
/// down(dropout(function(gate(x))) ∘ up(x)) (Shazeer 2020): "swiglu" with silu, "geglu" with gelu, "geglu_tanh" with
/// gelu_tanh, "reglu" with relu. Hidden columns are split over the tensor group.
class FeedForward : public Layer {
 public:
  explicit FeedForward(LayerSpec const& spec);

  static LayerTraits traits();

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override;
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override;

 private:
  struct Activations {
    Tensor input;
    Tensor hidden;     ///< before the activation: up(x), or gate(x) and up(x) side by side
    Tensor activated;  ///< after activation and dropout
  };
  /// This rank's hidden columns of `hidden`, or of its gradient.
  Tensor activated_columns(Tensor const& hidden) const;
  /// The columns by which those are multiplied; empty without a gate.
  Tensor factor_columns(Tensor const& hidden) const;
  ActivationCall activation_call(LayerContext const& context, Tensor const& hidden) const;

  std::string dropout_name_;
  Side side_;
  ActivationProblem problem_;
  double dropout_;
  Linear up_;
  Linear down_;
  std::shared_ptr<Activation> activation_;
};

}  // namespace heddle
