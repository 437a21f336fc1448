#pragma once

#include <array>
#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace heddle {

struct DivergenceProblem {
  DType dtype = DType::float32;
  std::int64_t local_vocabulary = 0;  ///< columns of the logits: this rank's part of the vocabulary
};
std::string describe(DivergenceProblem const& problem);

/// Logits of two passes over the same rows, with this rank's part of the vocabulary.
struct DivergenceCall {
  std::array<Tensor, 2> logits;      ///< of each pass [rows, local vocabulary]
  std::array<Tensor, 2> statistics;  ///< of each pass, SoftmaxCrossEntropy's over the whole vocabulary [rows, 4]
  Tensor targets;                    ///< int32 [rows]; below 0: ignored, with loss and gradient 0
  Tensor weights{};                  ///< [rows] in statistics_dtype: factors of the losses; empty: 1

  DivergenceProblem problem() const { return {logits[0].dtype(), logits[0].dim(1)}; }
};

/// The Kullback-Leibler divergence between two distributions p and q of each row. Between two passes (forward,
/// add_losses, backward) it is symmetric (R-Drop: Wu et al. 2021): a row's loss is KL(p || q) + KL(q || p). Where the
/// second pass is a teacher's (teach, add_taught_losses: Hinton et al. 2015), it is KL(q || p), and only p learns.
class Divergence : public Operation<DivergenceProblem> {
 public:
  static constexpr char const* operation = "divergence";
  static std::shared_ptr<Divergence> observed(ObservedSelection<Divergence> selection);
  /// sums = [rows, 2] in statistics_dtype, of the local columns: Σ p (a - b) and Σ q (b - a), with the logits a of p
  /// and b of q. Over the whole vocabulary the two add up to the row's loss.
  virtual void forward(Execution& execution, DivergenceCall const& call, Tensor const& sums) = 0;
  /// Column 0 of each pass's losses [rows, 2], in statistics_dtype, += factor / 2 * the row's loss, times its weight;
  /// the sums are those over the whole vocabulary.
  virtual void add_losses(Execution& execution, DivergenceCall const& call, Tensor const& sums, double factor,
                          std::array<Tensor, 2> const& losses) = 0;
  /// gradients, of each pass [rows, local vocabulary], = factor * d(loss)/d(logits), times the row's weight.
  virtual void backward(Execution& execution, DivergenceCall const& call, Tensor const& sums, double factor,
                        std::array<Tensor, 2> const& gradients) = 0;
  /// sums = [rows, 1] in statistics_dtype, of the local columns: Σ q (b - a). Replaces the teacher's logits b by factor
  /// * d(loss)/da = factor * (p - q), times the row's weight.
  virtual void teach(Execution& execution, DivergenceCall const& call, double factor, Tensor const& sums) = 0;
  /// Column 0 of losses [rows, 2] in statistics_dtype = kept * itself + factor * the row's loss, times its weight; the
  /// sums are those over the whole vocabulary.
  virtual void add_taught_losses(Execution& execution, DivergenceCall const& call, Tensor const& sums, double kept,
                                 double factor, Tensor const& losses) = 0;
};

/// The front end of implementations: calls the methods' namesakes in `Functions`, static templates of the logits'
/// element type.
template <class Functions>
class DivergenceFrontEnd final : public Divergence {
 public:
  bool supports(DivergenceProblem const& problem) const override { return problem.dtype != DType::int32; }
  void forward(Execution& execution, DivergenceCall const& call, Tensor const& sums) override {
    sums.require(statistics_dtype(call.logits[0].dtype()), {call.logits[0].dim(0), 2}, "divergence's sums");
    call.logits[1].require(call.logits[0].dtype(), call.logits[0].shape(), "divergence's second logits");
    kernels::with_floating(call.logits[0].dtype(), [&]<class Element>(Element) {
      Functions::template forward<Element>(execution, call, sums);
    });
  }
  void add_losses(Execution& execution, DivergenceCall const& call, Tensor const& sums, double factor,
                  std::array<Tensor, 2> const& losses) override {
    kernels::with_floating(call.logits[0].dtype(), [&]<class Element>(Element) {
      Functions::template add_losses<Element>(execution, call, sums, factor, losses);
    });
  }
  void backward(Execution& execution, DivergenceCall const& call, Tensor const& sums, double factor,
                std::array<Tensor, 2> const& gradients) override {
    kernels::with_floating(call.logits[0].dtype(), [&]<class Element>(Element) {
      Functions::template backward<Element>(execution, call, sums, factor, gradients);
    });
  }
  void teach(Execution& execution, DivergenceCall const& call, double factor, Tensor const& sums) override {
    sums.require(statistics_dtype(call.logits[0].dtype()), {call.logits[0].dim(0), 1}, "a teacher's sums");
    call.logits[1].require(call.logits[0].dtype(), call.logits[0].shape(), "a teacher's logits");
    kernels::with_floating(call.logits[0].dtype(), [&]<class Element>(Element) {
      Functions::template teach<Element>(execution, call, factor, sums);
    });
  }
  void add_taught_losses(Execution& execution, DivergenceCall const& call, Tensor const& sums, double kept,
                         double factor, Tensor const& losses) override {
    kernels::with_floating(call.logits[0].dtype(), [&]<class Element>(Element) {
      Functions::template add_taught_losses<Element>(execution, call, sums, kept, factor, losses);
    });
  }
};

}  // namespace heddle
