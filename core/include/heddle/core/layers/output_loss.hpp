#pragma once

#include <heddle/core/layer.hpp>

namespace heddle {

/// Sums over target tokens, end tokens included.
struct LossSums {
  double smoothed = 0;                 ///< label-smoothed cross-entropy
  double negative_log_likelihood = 0;  ///< natural log
  std::int64_t tokens = 0;
};

/// Output projection and label-smoothed cross-entropy in one, chunk of tokens by chunk, so that logits exist only for
/// one chunk. The whole vocabulary is on this rank: a tensor group of more is refused with the configuration
/// (require_supported).
class OutputLoss {
 public:
  /// `table` [vocabulary, d_model] may be the embedding's.
  OutputLoss(LayerSpec const& spec, Parameter& table);

  struct Training {
    double label_smoothing = 0;
    double scale = 1;  ///< of the gradient: 1 / target tokens of the global batch
  };
  /// The loss of hidden [tokens, d_model] and, in the same visit, grad_hidden = scale * d(smoothed loss)/d(hidden); the
  /// table's gradient is added (+=).
  LossSums forward_backward(Context& context, Tensor const& hidden, Tensor const& targets, Training const& training,
                            Tensor const& grad_hidden) const;
  LossSums forward(Context& context, Tensor const& hidden, Tensor const& targets, double label_smoothing) const;
  /// hidden [rows, d_model] → logits [rows, vocabulary], from the arena.
  Tensor logits(Context& context, Tensor const& hidden) const;

 private:
  LossSums visit(Context& context, Tensor const& hidden, Tensor const& targets, Training const& training,
                 Tensor const& grad_hidden) const;
  SoftmaxCrossEntropyCall call(Tensor const& logits, Tensor const& targets, double label_smoothing) const;

  Parameter& table_;
  std::shared_ptr<Gemm> gemm_;
  std::shared_ptr<SoftmaxCrossEntropy> cross_entropy_;
};

}  // namespace heddle
