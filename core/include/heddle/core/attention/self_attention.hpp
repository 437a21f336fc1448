#pragma once

#include <heddle/core/attention/attention_core.hpp>
#include <heddle/core/layers/linear.hpp>

namespace heddle {

/// Multi-head attention of a sequence to itself: Vaswani et al. 2017, §3.2. Causal on the target side, unless the
/// option `mask` says otherwise. Parameters: q, k, v and out, each with .weight and .bias.
class SelfAttention : public Layer {
 public:
  explicit SelfAttention(LayerSpec const& spec);

  static LayerTraits traits();

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override;
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override;
  HiddenStates decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                      DecodeCache& cache) const override;
  void reorder(LayerContext& context, Tensor const& parents, DecodeStep const& step, DecodeCache& cache) const override;

 private:
  /// Queries, keys and values side by side, as one product computes them.
  struct Projected {
    Tensor all, q, k, v;
  };
  Projected split(Tensor const& all) const;
  /// Writes the new tokens' keys or values behind those of earlier tokens.
  void append(LayerContext& context, Tensor const& rows, DecodeStep const& step, Tensor const& cached) const;

  struct Activations {
    Tensor input;
    AttentionCore::Activations attention;
  };
  struct Cache {
    Tensor keys{};                                       ///< [hypotheses, capacity * width]
    Tensor values{};                                     ///< [hypotheses, capacity * width]
    Tensor state{};                                      ///< in place of both, AttentionCall::state
    Tensor spare_keys{}, spare_values{}, spare_state{};  ///< the latest reorder read from them; the next writes there
  };

  AttentionSizes sizes_;
  Linear qkv_;
  Linear out_;
  AttentionCore core_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
