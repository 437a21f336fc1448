#pragma once

#include <heddle/core/attention/attention_core.hpp>
#include <heddle/core/layers/linear.hpp>

namespace heddle {

/// Multi-head attention of a stack's tokens to the output of the stack before it. Parameters are named as
/// SelfAttention's.
class CrossAttention : public Layer {
 public:
  /// Throws ConfigError in a stack without an encoder output.
  explicit CrossAttention(LayerSpec const& spec);

  static LayerTraits traits();

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override;
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override;
  HiddenStates decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                      DecodeCache& cache) const override;
  void reorder(LayerContext& context, Tensor const& parents, DecodeStep const& step, DecodeCache& cache) const override;

 private:
  static Tensor keys(Tensor const& kv) { return kv.columns(0, kv.dim(1) / 2); }
  static Tensor values(Tensor const& kv) { return kv.columns(kv.dim(1) / 2, kv.dim(1) / 2); }

  struct Activations {
    Tensor input;
    Tensor encoder_output;
    AttentionCore::Activations attention;
  };
  struct Cache {
    Tensor kv;                  ///< [the encoder output's tokens, columns of k and of v]: the same at every step
    Tensor state, spare_state;  ///< as SelfAttention's, where the core has a state
  };

  AttentionSizes sizes_;
  Linear q_;
  Linear kv_;
  Linear out_;
  AttentionCore core_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
