#pragma once

#include <heddle/core/layers/context_attention.hpp>
#include <heddle/core/layers/linear.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

/// What self- and cross-attention share: the kernel and the shape of its calls. Heads are split over the tensor group
/// and, where the pack is, tokens over the context group.
class AttentionCore {
 public:
  AttentionCore(LayerSpec const& spec, bool causal);

  struct Activations {
    Tensor q, k, v, output;
    ContextAttention::Kept kept;  ///< what the kernel was called with and gave
  };
  /// Queries are the stack's side's tokens; keys those of `keys`. The result's tensors come from the arena.
  Activations forward(LayerContext& context, Side keys, Tensor const& q, Tensor const& k, Tensor const& v) const;
  void backward(LayerContext& context, Side keys, Activations const& activations, Tensor const& grad_output,
                AttentionGradients const& gradients) const;
  /// One query per row against cached keys and values.
  Tensor decode(LayerContext& context, Tensor const& q, Tensor const& k, Tensor const& v, Sequences const& queries,
                Sequences const& keys) const;

 private:
  AttentionCall call(LayerContext const& context, Side keys, Activations const& activations) const;
  ContextAttention::Place place(LayerContext& context, Side keys) const;
  std::shared_ptr<Attention> context_kernel(LayerSpec const& spec) const;
  bool spread(LayerContext const& context) const { return !context.pack.context(side_).shards.empty(); }

  std::string name_;
  Side side_;
  AttentionMask mask_;
  double dropout_;
  std::int64_t heads_;       ///< of this rank
  std::int64_t first_head_;  ///< global index of the first
  std::int64_t head_dim_;
  std::shared_ptr<Attention> attention_;
  ContextAttention context_attention_;
};

/// Multi-head attention of a sequence to itself, causal in the decoder: Vaswani et al. 2017, §3.2.
class SelfAttention : public Layer {
 public:
  explicit SelfAttention(LayerSpec const& spec);

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override;
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override;
  HiddenStates decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                      DecodeCache& cache) const override;
  void reorder(LayerContext& context, Tensor const& parents, DecodeStep const& step, DecodeCache& cache) const override;

 private:
  struct Activations {
    Tensor input;
    AttentionCore::Activations attention;
  };
  struct Cache {
    Tensor keys;                      ///< [rows, capacity * width]
    Tensor values;                    ///< [rows, capacity * width]
    Tensor spare_keys, spare_values;  ///< what the latest reorder read from; the next one writes there
  };

  Side side_;
  Linear qkv_;
  Linear out_;
  AttentionCore core_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

/// Multi-head attention of the decoder's tokens to the encoder's output.
class CrossAttention : public Layer {
 public:
  /// Throws ConfigError on the source side, which has no memory.
  explicit CrossAttention(LayerSpec const& spec);

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override;
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override;
  HiddenStates decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                      DecodeCache& cache) const override;

 private:
  struct Activations {
    Tensor input;
    Tensor memory;
    AttentionCore::Activations attention;
  };
  struct Cache {
    Tensor kv;  ///< [source tokens, 2 * width]: the memory's keys and values, the same at every step
  };

  Side side_;
  Linear q_;
  Linear kv_;
  Linear out_;
  AttentionCore core_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
