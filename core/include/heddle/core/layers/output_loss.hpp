#pragma once

#include <heddle/core/layers/tensor_region.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>

namespace heddle {

/// Sums over target tokens, end tokens included.
struct LossSums {
  double smoothed = 0;                 ///< label-smoothed cross-entropy
  double negative_log_likelihood = 0;  ///< natural log
  std::int64_t tokens = 0;
};

/// Output projection and label-smoothed cross-entropy in one, for one chunk of tokens after the other, so that logits
/// exist only for one chunk. The vocabulary is split over the tensor group, over which every call is collective: its
/// ranks exchange four numbers per token, never logits, and all know the loss.
class OutputLoss {
 public:
  /// `table` [vocabulary, d_model] may be the embedding's table.
  OutputLoss(LayerSpec const& spec, Parameter& table);

  struct Training {
    double label_smoothing = 0;
    double scale = 1;  ///< of the gradient: 1 / target tokens of the global batch; 0 where none is wanted
  };
  /// The loss of hidden [stream rows, d_model] and, in the same pass, grad_hidden = scale * d(smoothed
  /// loss)/d(hidden); the table's gradient is added (+=). With an empty grad_hidden the loss alone. Collective over the
  /// tensor group.
  LossSums evaluate(LayerContext& context, Tensor const& hidden, Tensor const& targets, Training const& training,
                    Tensor const& grad_hidden) const;
  /// hidden [rows, d_model] → logits [rows, this rank's part of the vocabulary] in statistics_dtype, from the arena:
  /// logits for ranking are not rounded.
  Tensor logits(LayerContext& context, Tensor const& hidden) const;
  /// The global id of the logits' first column.
  std::int64_t first_token() const { return table_.shard_begin; }

 private:
  Tensor logits(LayerContext& context, Tensor const& hidden, DType dtype) const;
  SoftmaxCrossEntropyCall call(Tensor const& logits, Tensor const& targets, double label_smoothing) const;
  /// The statistics over the whole vocabulary, [tokens, 4].
  Tensor statistics(LayerContext& context, SoftmaxCrossEntropyCall const& call) const;

  Communicator tensor_;
  TensorRegion region_;
  Parameter& table_;
  std::shared_ptr<Gemm> gemm_;
  std::shared_ptr<SoftmaxCrossEntropy> cross_entropy_;
};

}  // namespace heddle
