#pragma once

#include <heddle/core/layers/layer.hpp>
#include <heddle/core/operations/guided_alignment.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <memory>

namespace heddle {

/// The option guided_alignment_weight of a cross-attention layer; 0: its alignments are not guided.
double guided_alignment_weight(LayerOptions const& options);

/// The auxiliary loss that draws the first head of a cross-attention layer towards the alignments of the pack, as in
/// Marian: `weight` times the sum of GuidedAlignment's losses. The tensor rank that has the head computes it. Over a
/// context group each rank gathers the head's keys, [source tokens, head_dim], and computes the loss of its own rows.
class AlignmentGuide {
 public:
  /// `scale` is that of the layer's scores, which are products.
  AlignmentGuide(LayerSpec const& spec, double weight, std::int64_t head_dim, double scale);

  struct Activations {
    GuidedAlignmentCall call;
    Tensor rows;  ///< the operation's; empty where this rank computes nothing
  };
  /// Adds the loss to context.loss_sums, where they are wanted. q and k have the columns of this rank's heads.
  /// Collective over the tensor and context groups, and so is backward.
  Activations forward(LayerContext& context, Tensor const& q, Tensor const& k) const;
  /// Adds (+=) the loss's gradients to those of q and k.
  void backward(LayerContext& context, Activations const& activations, Tensor const& grad_q,
                Tensor const& grad_k) const;

 private:
  /// The keys of all context ranks in the order of ContextRows::whole, or this rank's.
  Tensor gather(LayerContext& context, Tensor const& keys) const;
  /// This rank's rows of the sum over the context group, whose ranks each have gradients of all keys.
  Tensor scatter(LayerContext& context, Tensor const& gradients) const;
  /// into += gradients, which may have another dtype.
  void add(LayerContext& context, Tensor const& into, Tensor const& gradients) const;

  Side queries_, keys_;
  double weight_;
  std::int64_t head_dim_;
  double scale_;
  Communicator tensor_, context_;
  std::shared_ptr<GuidedAlignment> operation_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
