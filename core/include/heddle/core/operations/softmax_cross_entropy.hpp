#pragma once

#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace heddle {

struct SoftmaxCrossEntropyProblem {
  DType dtype = DType::float32;
  std::int64_t local_vocabulary = 0;   ///< columns of the logits: this rank's part of the vocabulary
  std::int64_t global_vocabulary = 0;  ///< over all ranks of the tensor group
};
std::string describe(SoftmaxCrossEntropyProblem const& problem);
std::string timing_key(SoftmaxCrossEntropyProblem const& problem);
/// The cost of the losses and gradient of `tokens` tokens.
Cost cost(SoftmaxCrossEntropyProblem const& problem, double tokens);

/// A chunk of tokens' logits over this rank's part of the vocabulary.
struct SoftmaxCrossEntropyCall {
  Tensor logits;                       ///< [tokens, local vocabulary]
  Tensor targets;                      ///< int32 [tokens], global ids; below 0: ignored, with loss and gradient 0
  std::int64_t first_token = 0;        ///< the global id of column 0
  std::int64_t global_vocabulary = 0;  ///< over all ranks of the tensor group
  double label_smoothing = 0;  ///< ε: target 1 - ε, plus ε / global_vocabulary everywhere (Szegedy et al. 2016)
  double z_loss = 0;  ///< added to a row's smoothed loss times log²Z, Z = Σ exp(logit) (Chowdhery et al. 2022)
  Tensor weights{};   ///< [tokens] in statistics_dtype: of each row's losses and gradient; empty: 1

  SoftmaxCrossEntropyProblem problem() const;
};

/// One pass where this rank holds the whole vocabulary (losses_and_gradient). Two where it is sharded: between them
/// four values per token are reduced, and logits are never gathered (statistics, combine, losses, gradient).
class SoftmaxCrossEntropy : public Operation<SoftmaxCrossEntropyProblem> {
 public:
  static constexpr char const* operation = "softmax_cross_entropy";
  /// Columns of the statistics: max logit, Σ exp(logit - max), the target's logit (0 where it is elsewhere), Σ logit.
  static constexpr std::int64_t statistics_columns = 4;
  /// Columns of the sums of losses: Σ smoothed loss with z-loss, Σ negative log-likelihood, rows that are not ignored,
  /// and the rows counted by add_correct.
  static constexpr std::int64_t sums_size = 4;
  static std::shared_ptr<SoftmaxCrossEntropy> observed(ObservedSelection<SoftmaxCrossEntropy> selection);
  /// statistics = [tokens, 4] in statistics_dtype, of the local columns.
  virtual void statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) = 0;
  /// statistics [tokens, 4] of the whole vocabulary = its parts' statistics [parts, tokens, 4], combined.
  virtual void combine(Execution& execution, Tensor const& parts, Tensor const& statistics) = 0;
  /// losses = [tokens, 2] in statistics_dtype, from the statistics over the whole vocabulary: the smoothed loss with
  /// the z-loss and the plain negative log-likelihood (natural log), both times the row's weight; 0 for an ignored row.
  virtual void losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                      Tensor const& losses) = 0;
  /// sums [4] in float64 += the sums of losses [tokens, 2], in a fixed order (except in `teams` row after row, so that
  /// two calls give the same sums as one); the last is left as it is.
  virtual void add_losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& losses,
                          Tensor const& sums) = 0;
  /// The last of sums [4] += the rows, of those that are not ignored, in which no logit is higher than the target's;
  /// from the statistics over the whole vocabulary.
  virtual void add_correct(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                           Tensor const& sums) = 0;
  /// Replaces the logits by scale * d(smoothed loss + z-loss)/d(logits), times the row's weight.
  virtual void gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                        double scale) = 0;
  /// For logits over the whole vocabulary: computes `losses` as above and replaces the logits as `gradient` does. The
  /// default makes the two passes; an implementation may override it to read and write the logits once.
  virtual void losses_and_gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, double scale,
                                   Tensor const& losses);
};

/// The front end of implementations: calls the methods' namesakes in `Functions`, static templates. statistics,
/// gradient and losses_and_gradient, which may be absent, have the logits' element type as their parameter; the others
/// have the statistics' type.
template <class Functions, class Types = kernels::FloatingTypes>
class SoftmaxCrossEntropyFrontEnd final : public SoftmaxCrossEntropy {
  using Call = SoftmaxCrossEntropyCall;

 public:
  bool supports(SoftmaxCrossEntropyProblem const& problem) const override { return Types::contain(problem.dtype); }
  void statistics(Execution& execution, Call const& call, Tensor const& statistics) override {
    Types::with(call.logits.dtype(),
                [&]<class Element>(Element) { Functions::template statistics<Element>(execution, call, statistics); });
  }
  void combine(Execution& execution, Tensor const& part_statistics, Tensor const& statistics) override {
    Types::with_real(statistics.dtype(), [&]<class Real>(Real) {
      Functions::template combine<Real>(execution, part_statistics, statistics);
    });
  }
  void losses(Execution& execution, Call const& call, Tensor const& statistics, Tensor const& losses) override {
    Types::with_real(statistics.dtype(),
                     [&]<class Real>(Real) { Functions::template losses<Real>(execution, call, statistics, losses); });
  }
  void add_losses(Execution& execution, Call const& call, Tensor const& losses, Tensor const& sums) override {
    Types::with_real(losses.dtype(),
                     [&]<class Real>(Real) { Functions::template add_losses<Real>(execution, call, losses, sums); });
  }
  void add_correct(Execution& execution, Call const& call, Tensor const& statistics, Tensor const& sums) override {
    Types::with_real(statistics.dtype(), [&]<class Real>(Real) {
      Functions::template add_correct<Real>(execution, call, statistics, sums);
    });
  }
  void gradient(Execution& execution, Call const& call, Tensor const& statistics, double scale) override {
    Types::with(call.logits.dtype(), [&]<class Element>(Element) {
      Functions::template gradient<Element>(execution, call, statistics, scale);
    });
  }
  void losses_and_gradient(Execution& execution, Call const& call, double scale, Tensor const& losses) override {
    if constexpr (requires { Functions::template losses_and_gradient<float>(execution, call, scale, losses); }) {
      Types::with(call.logits.dtype(), [&]<class Element>(Element) {
        Functions::template losses_and_gradient<Element>(execution, call, scale, losses);
      });
    } else {
      SoftmaxCrossEntropy::losses_and_gradient(execution, call, scale, losses);
    }
  }
};

}  // namespace heddle
