#pragma once

#include <heddle/core/layers/context_attention.hpp>
#include <heddle/core/layers/registry.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

/// Sizes of an attention layer: heads and columns of all ranks.
struct AttentionSizes {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< of keys and values: query head i uses head i / (heads / kv_heads)
  std::int64_t head_dim = 0;

  std::int64_t query_columns() const { return heads * head_dim; }
  std::int64_t key_columns() const { return kv_heads * head_dim; }
};

/// The sizes that follow from a layer's keys and its options `kv_heads` and `head_dim` (defaults: heads and
/// d_model / heads). Throws ConfigError where they do not match.
AttentionSizes attention_sizes(ModelConfig const& keys, LayerOptions const& options);

/// The common part of self- and cross-attention: the kernel and the shape of its calls. Heads are split over the
/// tensor group and, where the pack is, tokens over the context group.
class AttentionCore {
 public:
  /// `keys` is the side whose tokens are attended to. Throws ConfigError where the heads cannot be
  /// divided among the ranks, and where these heads or this mask cannot be split over a context
  /// group.
  AttentionCore(LayerSpec const& spec, Side keys, AttentionMask const& mask);

  struct Activations {
    Tensor q, k, v, output;
    ContextAttention::Activations kernel;  ///< the kernel's call and its results
  };
  /// Queries are tokens of the stack's side. The result's tensors come from the arena.
  Activations forward(LayerContext& context, Tensor const& q, Tensor const& k, Tensor const& v) const;
  void backward(LayerContext& context, Activations const& activations, Tensor const& grad_output,
                AttentionGradients const& gradients) const;
  /// One query per row against cached keys and values.
  Tensor decode(LayerContext& context, Tensor const& q, Tensor const& k, Tensor const& v, Sequences const& queries,
                Sequences const& keys) const;

  /// Options, capabilities and cost of both layers.
  static LayerTraits traits();

 private:
  AttentionCall call(LayerContext const& context, Tensor const& q, Tensor const& k, Tensor const& v) const;
  ContextAttention::Task task(LayerContext& context) const;
  std::shared_ptr<Attention> context_kernel(LayerSpec const& spec) const;
  bool tokens_are_split(LayerContext const& context) const { return !context.pack.context(side_).shards.empty(); }

  std::string name_;
  Side side_;
  Side keys_;
  AttentionMask mask_;
  double dropout_;
  AttentionSizes sizes_;
  std::int64_t heads_;       ///< of this rank
  std::int64_t kv_heads_;    ///< of this rank; 0: as many as heads
  std::int64_t first_head_;  ///< global index of the first
  std::shared_ptr<Attention> attention_;
  ContextAttention context_attention_;
};

}  // namespace heddle
