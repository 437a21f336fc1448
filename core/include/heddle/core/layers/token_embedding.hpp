#pragma once

#include <heddle/core/layers/norm.hpp>
#include <heddle/core/layers/tensor_region.hpp>
#include <heddle/core/operations/embedding.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <optional>

namespace heddle {

/// Computes dropout(sqrt(d_model) * table[id] + position): the start of a stack's stream (Vaswani et al. 2017,
/// §3.4 and §3.5). The factor is 1 where model.scale_embedding is false, and no position is added where model.positions
/// is not "sinusoidal" or "learned". With model.embedding_norm it is dropout(norm(…)) (Devlin et al. 2019), and that
/// norm is NAME.embedding_norm. The vocabulary is split over the tensor group: each rank looks its tokens up, and the
/// stream is the sum of the ranks' rows, so both calls are collective over that group.
class TokenEmbedding {
 public:
  /// `table` [vocabulary, d_model] may be shared. Learned positions are declared as NAME.positions.weight.
  TokenEmbedding(LayerSpec const& spec, Parameter& table);

  /// [stream rows, d_model] from the arena.
  Tensor forward(LayerContext& context, TokenIds const& tokens, TokenRows const& rows, Saved& saved) const;
  /// Adds to the gradients of the table, of learned positions and of the norm. `grad_output` is overwritten.
  void backward(LayerContext& context, TokenIds const& tokens, TokenRows const& rows, Tensor const& grad_output,
                Saved const& saved) const;

 private:
  struct Activations {
    Norm::Activations norm;
    Norm::Activations dropped;  ///< the sum of zeros and dropout(normalized), where dropout is active
  };
  Tensor embed(LayerContext& context, TokenIds const& tokens, TokenRows const& rows) const;
  Tensor normalize(LayerContext& context, Tensor const& embedded, Saved& saved) const;
  /// The gradient of normalize's input.
  Tensor normalize_backward(LayerContext& context, Tensor const& grad_output, Activations const& activations) const;
  EmbeddingCall call(LayerContext const& context, TokenIds const& tokens, TokenRows const& rows) const;

  std::string dropout_name_;
  Side side_;
  DType dtype_;
  double dropout_;
  double scale_;
  TensorRegion region_;
  Parameter& table_;
  Parameter* learned_positions_ = nullptr;
  Tensor fixed_positions_;
  std::shared_ptr<Embedding> embedding_;
  std::optional<Norm> norm_;
  std::optional<Norm> drop_;  ///< beside a norm: the sum that applies the dropout after it
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
