#pragma once

#include <heddle/core/layers/norm.hpp>
#include <heddle/core/layers/stack_input.hpp>
#include <heddle/core/layers/tensor_region.hpp>
#include <heddle/core/operations/embedding.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <optional>
#include <vector>

namespace heddle {

/// The table of model.positions = "sinusoidal", [max_length, d_model]: sines and cosines of wavelengths from 2π to
/// about 10000 * 2π, in pairs of columns (Vaswani et al. 2017, §3.5), or all sines before all cosines as in
/// tensor2tensor, fairseq and Marian. With the frequencies of the first two of them the last wavelength is exactly the
/// longest. An odd last column is a sine, or 0.
std::vector<double> sinusoidal_positions(ModelConfig const& model);

/// The input "tokens": dropout(sqrt(d_model) * table[id] + position) of a pack's source or target input (Vaswani et al.
/// 2017, §3.4 and §3.5). The factor is 1 where model.scale_embedding is false, and no position is added where
/// model.positions is not "sinusoidal" or "learned". With model.embedding_norm it is dropout(norm(…)) (Devlin et al.
/// 2019), and that norm is NAME.embedding_norm. With model.token_types the first row of NAME.token_types.weight is
/// added to each token, or after the first of two texts the second row (Devlin et al. 2019); others have no gradient.
/// The vocabulary is split over the tensor group: each rank looks its tokens up, and the stream is the sum of the
/// ranks' rows, so both calls are collective over that group.
class TokenEmbedding final : public StackInput {
 public:
  /// Learned positions are declared as NAME.positions.weight. Throws Error where the spec has no table.
  explicit TokenEmbedding(LayerSpec const& spec);

  Tensor forward(LayerContext& context, Saved& saved) const override {
    return forward(context, tokens(context.pack), context.pack.rows(side_), saved);
  }
  void backward(LayerContext& context, Tensor const& grad_output, Saved const& saved) const override;
  Tensor decode(LayerContext& context, TokenIds const& tokens, TokenRows const& rows) const override {
    Saved saved;
    return forward(context, tokens, rows, saved);
  }

 private:
  struct Activations {
    Norm::Activations norm;
    Norm::Activations dropped;  ///< the sum of zeros and dropout(normalized), where dropout is active
  };
  TokenIds const& tokens(Pack const& pack) const { return side_ == Side::source ? pack.source : pack.target_input; }
  Tensor forward(LayerContext& context, TokenIds const& tokens, TokenRows const& rows, Saved& saved) const;
  Tensor embed(LayerContext& context, TokenIds const& tokens, TokenRows const& rows) const;
  Tensor normalize(LayerContext& context, Tensor const& embedded, Saved& saved) const;
  /// The gradient of normalize's input.
  Tensor normalize_backward(LayerContext& context, Tensor const& grad_output, Activations const& activations) const;
  /// The number of token types that rows of a pack may have.
  std::int64_t types_in(TokenRows const& rows) const;
  /// The table of positions, with the token types added: [types * positions, d_model], position * types + type.
  Tensor positions(LayerContext& context, std::int64_t types) const;
  /// Adds to the gradients of positions and token types.
  void add_positions_gradient(LayerContext& context, Tensor const& grad_positions, std::int64_t types) const;
  EmbeddingCall call(LayerContext& context, TokenIds const& tokens, TokenRows const& rows) const;

  std::string dropout_name_;
  Side side_;
  DType dtype_;
  double dropout_;
  double scale_;
  TensorRegion region_;
  Parameter& table_;
  Parameter* learned_positions_ = nullptr;
  Tensor fixed_positions_;
  Parameter* token_types_ = nullptr;  ///< [types, d_model]
  Tensor zeros_;                      ///< int32 [max_length]
  std::shared_ptr<Embedding> embedding_;
  std::optional<Norm> norm_;
  std::optional<Norm> drop_;  ///< beside a norm: the sum that applies the dropout after it
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
