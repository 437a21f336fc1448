#pragma once

#include <heddle/core/attention/alignment_guide.hpp>
#include <heddle/core/attention/attention_positions.hpp>
#include <heddle/core/attention/context_attention.hpp>
#include <heddle/core/layers/norm.hpp>
#include <heddle/core/layers/registry.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <optional>

namespace heddle {

/// Sizes of an attention layer: heads and columns of all ranks.
struct AttentionSizes {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< heads of keys and values: query head i uses head i / (heads / kv_heads)
  std::int64_t head_dim = 0;

  std::int64_t query_columns() const { return heads * head_dim; }
  std::int64_t key_columns() const { return kv_heads * head_dim; }
};

/// The sizes that follow from a layer's keys and its options `kv_heads` and `head_dim` (defaults: heads and
/// d_model / heads). Throws ConfigError where they do not match.
AttentionSizes attention_sizes(ModelConfig const& keys, LayerOptions const& options);

/// Writes `values` [new rows, columns] to their rows of `cache` [rows, columns or more], which grows where the step
/// needs more rows than it has, or has none yet.
void write_cache(LayerContext& context, TensorOps& tensor_ops, Tensor const& values, CacheRows const& rows,
                 Tensor& cache);

/// The states of the step's hypotheses, [hypotheses, columns] in `dtype` from the arena: rows of the cache `states`, or
/// zeros in a first step. write_cache puts them back.
Tensor take_states(LayerContext& context, TensorOps& tensor_ops, DecodeStep const& step, Tensor const& states,
                   DType dtype, std::int64_t columns);

/// The common part of self- and cross-attention: the kernel and the shape of its calls. Heads are split over the
/// tensor group and, where the pack is, tokens over the context group. With the option query_key_norm each head's
/// queries and keys are normalized over its columns before they meet (Dehghani et al. 2023); the heads share the
/// weights, NAME.q_norm and NAME.k_norm. With joint_query_key_norm these norms have the columns of all heads (OLMo 2).
/// Additive scores have the parameter NAME.score.weight [heads, head_dim]. With guided_alignment_weight an
/// AlignmentGuide adds its loss.
class AttentionCore {
 public:
  /// `keys` is the side whose tokens are attended to. The layer's declaration (`traits`) must allow the ranks of
  /// `spec.parallel`.
  AttentionCore(LayerSpec const& spec, Side keys, AttentionMask const& mask);

  struct Activations {
    Tensor q, k, v, output;
    ContextAttention::Activations kernel;  ///< the kernel's call, with queries and keys as normalized, and its results
    Norm::Activations q_norm, k_norm;      ///< activations of [tokens * heads, head_dim], where there are such norms
    AlignmentGuide::Activations guide;     ///< where the layer is guided
  };
  /// Queries are tokens of the stack's side. The result's tensors come from the arena. Where the stack's positions are
  /// rotations, q and k are rotated in place.
  Activations forward(LayerContext& context, Tensor const& q, Tensor const& k, Tensor const& v) const;
  void backward(LayerContext& context, Activations const& activations, Tensor const& grad_output,
                AttentionGradients const& gradients) const;
  /// Keys [rows, columns] of new tokens as decode takes them from the cache: normalized where the layer does that, and
  /// rotated where the stack's positions are rotations. `k` is overwritten.
  Tensor keys_to_cache(LayerContext& context, Tensor const& k, DecodeStep const& step) const;
  /// The keys of a step of decode: cached ones or, with a state, those that are new to it.
  struct DecodeKeys {
    Tensor k, v;
    Sequences sequences;
  };
  /// The new tokens' queries against `keys`. `q` is overwritten, and so are the hypotheses' rows of `states`, the cache
  /// of AttentionCall::state, where there is a state.
  Tensor decode(LayerContext& context, Tensor const& q, DecodeKeys const& keys, DecodeStep const& step,
                Tensor& states) const;
  /// Whether decode needs a state in place of cached keys and values.
  bool has_state() const { return base_.score == ScoreKind::linear; }

 private:
  AttentionProblem problem(DType dtype) const;
  bool rotates() const { return positions_ != nullptr && positions_->rotates(); }
  AttentionCall call(LayerContext& context, Tensor const& q, Tensor const& k, Tensor const& v) const;
  /// The call for all rows of the pack.
  AttentionCall pack_call(LayerContext& context, Tensor const& q, Tensor const& k, Tensor const& v) const;
  ContextAttention::Task task(LayerContext& context) const;
  /// x [tokens, heads * head_dim] with each head's columns, or those of all heads, normalized; x itself where there is
  /// no norm.
  Tensor normalize(LayerContext& context, std::optional<Norm> const& norm, Tensor const& x,
                   Norm::Activations& activations) const;
  /// x with contiguous rows, which a joint norm needs with the columns of all tensor ranks. Then collective over them.
  Tensor rows_for_norm(LayerContext& context, Tensor const& x) const;
  /// This rank's columns of the result of rows_for_norm for x.
  Tensor own_columns(Tensor const& rows, Tensor const& x) const;
  /// grad_x (=) from the gradient of normalize's result, which may be overwritten.
  void normalize_backward(LayerContext& context, Norm const& norm, Norm::Activations const& activations,
                          Tensor const& grad, Tensor const& grad_x) const;
  std::shared_ptr<Attention> context_kernel(LayerSpec const& spec) const;
  bool tokens_are_split(LayerContext const& context) const { return !context.pack.context(side_).shards.empty(); }

  std::string name_;
  std::string dropout_name_;
  Side side_;
  Side keys_;
  double dropout_;
  AttentionSizes sizes_;
  AttentionCall base_;                             ///< heads of this rank, scale and mask: the same in all calls
  std::int64_t first_head_;                        ///< global index of the first
  std::shared_ptr<AttentionPositions> positions_;  ///< of the stack, for self-attention; may be null
  std::shared_ptr<Attention> attention_;
  ContextAttention context_attention_;
  std::shared_ptr<TensorOps> tensor_ops_;
  std::optional<Norm> query_norm_, key_norm_;
  std::optional<AlignmentGuide> guide_;
  Communicator tensor_;
  bool joint_norm_ = false;                          ///< these are over the columns of all heads
  Parameter* score_weight_ = nullptr;                ///< the weight of additive scores; null for other scores
  std::shared_ptr<TensorOps> weight_ops_ = nullptr;  ///< for that weight
};

void register_attention_layers(LayerRegistry& registry);
void register_recurrent_layers(LayerRegistry& registry);

}  // namespace heddle
