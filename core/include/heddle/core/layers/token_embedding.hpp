#pragma once

#include <heddle/core/layers/tensor_region.hpp>
#include <heddle/core/operations/embedding.hpp>

namespace heddle {

/// Computes dropout(sqrt(d_model) * table[id] + position): the beginning of a stack's stream (Vaswani et al. 2017,
/// §3.4 and §3.5). The factor is 1 where model.scale_embedding is false, and no position is added where model.positions
/// is not "sinusoidal" or "learned". The vocabulary is split over the tensor group: each rank looks its tokens up, and
/// the stream is the sum of the ranks' rows, so both calls are collective over that group.
class TokenEmbedding {
 public:
  /// `table` [vocabulary, d_model] may be shared. Learned positions are declared as NAME.positions.weight.
  TokenEmbedding(LayerSpec const& spec, Parameter& table);

  /// [stream rows, d_model] from the arena.
  Tensor forward(LayerContext& context, TokenIds const& tokens, TokenRows const& rows) const;
  /// Adds to the gradients of the table and of learned positions.
  void backward(LayerContext& context, TokenIds const& tokens, TokenRows const& rows, Tensor const& grad_output) const;

 private:
  EmbeddingCall call(LayerContext const& context, TokenIds const& tokens, TokenRows const& rows) const;

  std::string name_;
  Side side_;
  DType dtype_;
  double dropout_;
  double scale_;
  TensorRegion region_;
  Parameter& table_;
  Parameter* learned_positions_ = nullptr;
  Tensor fixed_positions_;
  std::shared_ptr<Embedding> embedding_;
};

}  // namespace heddle
