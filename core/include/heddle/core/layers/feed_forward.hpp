#pragma once

#include <heddle/core/layers/linear.hpp>
#include <heddle/core/layers/registry.hpp>
#include <heddle/core/operations/activation.hpp>

namespace heddle {

/// Computes down(dropout(activation(up(x)))): Vaswani et al. 2017, §3.3. Hidden columns are split over the tensor
/// group.
class FeedForward : public Layer {
 public:
  explicit FeedForward(LayerSpec const& spec);

  static LayerTraits traits();

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override;
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override;

 private:
  struct Activations {
    Tensor input;
    Tensor hidden;     ///< before the activation
    Tensor activated;  ///< after activation and dropout
  };
  ActivationCall activation_call(LayerContext const& context, Tensor const& hidden) const;

  std::string name_;
  Side side_;
  std::string function_;
  double dropout_;
  Linear up_;
  Linear down_;
  std::shared_ptr<Activation> activation_;
};

}  // namespace heddle
