#pragma once

#include <heddle/core/layers/linear.hpp>
#include <heddle/core/operations/activation.hpp>

#include "product.hpp"

namespace swish {

/// Computes down(dropout(activation(gate(x))) ∘ up(x)); with activation = "swish" this is SwiGLU (Shazeer 2020).
class GatedFeedForward final : public heddle::Layer {
 public:
  explicit GatedFeedForward(heddle::LayerSpec const& spec);

  heddle::HiddenStates forward(heddle::LayerContext& context, heddle::HiddenStates const& input,
                               heddle::Saved& saved) const override;
  heddle::HiddenStates backward(heddle::LayerContext& context, heddle::HiddenStates const& grad_output,
                                heddle::Saved const& saved) const override;

 private:
  struct Activations {
    heddle::Tensor input;
    heddle::Tensor gate;       ///< before the activation
    heddle::Tensor activated;  ///< after activation and dropout
    heddle::Tensor up;
    heddle::Tensor product;  ///< activated ∘ up
  };
  heddle::ActivationCall activation_call(heddle::LayerContext const& context, heddle::Tensor const& gate) const;

  std::string name_;
  heddle::Side side_;
  std::string function_;
  double dropout_;
  heddle::Linear gate_;
  heddle::Linear up_;
  heddle::Linear down_;
  std::shared_ptr<heddle::Activation> activation_;
  std::shared_ptr<Product> product_;
};

}  // namespace swish
