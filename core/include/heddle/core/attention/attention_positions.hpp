#pragma once

#include <heddle/core/layers/layer.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <memory>
#include <vector>

namespace heddle {

/// The effect of positions inside the self-attention of a stack: a rotation of queries and keys, a bias of their
/// scores, or both. A stack owns one, and its layers share it (LayerSpec::positions), unless they have their own; each
/// of them calls add_layer when it is built. Cross-attention takes none. AttentionCore calls every function except the
/// constructors.
class AttentionPositions {
 public:
  virtual ~AttentionPositions() = default;

  /// A layer with `heads` heads (of all ranks) of `head_dim` columns is being built: adds its use of what the layers
  /// share. Throws ConfigError, naming the layer and the key, where these heads do not fit.
  virtual void add_layer(LayerSpec const& spec, std::int64_t heads, std::int64_t head_dim) = 0;

  /// Whether queries and keys are rotated. If so, `rotate` turns matrix [rows, n * head_dim] in place, rows being at
  /// `position` (int32 [rows]); rows may be strided. `back`: the backward pass, of a gradient.
  virtual bool rotates() const { return false; }
  virtual void rotate(LayerContext& /*context*/, Tensor const& /*matrix*/, std::int64_t /*head_dim*/,
                      Tensor const& /*position*/, bool /*back*/) const {}

  /// Whether calls have a bias, which not every kernel supports. If so, `bias` gives it: AttentionCall::bias for this
  /// rank's heads. bias_gradient gives the tensor that the backward pass of a call adds to (+=), empty for a bias
  /// without parameters; then bias_gradient_done is called with that tensor.
  virtual bool has_bias() const { return false; }
  virtual Tensor bias(LayerContext& /*context*/) const { return {}; }
  virtual Tensor bias_gradient(LayerContext& /*context*/) const { return {}; }
  virtual void bias_gradient_done(LayerContext& /*context*/, Tensor const& /*gradient*/) const {}
};

/// The weight that a call takes besides its inputs, also in its backward pass: where replicas divide weights, a copy in
/// the arena, because the weight is gathered at another place then.
Tensor kept_weight(LayerContext& context, TensorOps& tensor_ops, Tensor const& weight);

/// The description that a stack's positions are made from.
struct AttentionPositionsSpec {
  LayerSpec const& stack;   ///< its name, and the keys of the stack
  std::int64_t heads = 0;   ///< heads of the stack's first layer that takes positions
  std::vector<int> stages;  ///< pipeline stages with such layers, ascending; empty: one
};

/// Whether model.positions names a kind that acts in attention.
bool act_in_attention(Positions kind);
/// Whether an attention layer with these options has positions of its own: it does not take its stack's.
bool has_own_positions(LayerOptions const& options);
/// Makes what a stack's layers share, null for positions that do not act in attention. Declares its parameters.
std::shared_ptr<AttentionPositions> make_attention_positions(AttentionPositionsSpec const& spec);

}  // namespace heddle
