#pragma once

#include <heddle/core/layers/linear.hpp>

namespace heddle {

/// down(dropout(activation(up(x)))): Vaswani et al. 2017, §3.3. Hidden columns are split over the tensor group.
class FeedForward : public Layer {
 public:
  explicit FeedForward(LayerSpec const& spec);

  Stream forward(Context& context, Stream const& input, Saved& saved) const override;
  Stream backward(Context& context, Stream const& grad_output, Saved const& saved) const override;

 private:
  struct Activations {
    Tensor input;
    Tensor hidden;     ///< before the activation
    Tensor activated;  ///< after activation and dropout
  };
  ActivationCall activation_call(Context const& context, Tensor const& hidden) const;

  std::string name_;
  Side side_;
  std::string function_;
  double dropout_;
  Linear up_;
  Linear down_;
  std::shared_ptr<Activation> activation_;
};

}  // namespace heddle
