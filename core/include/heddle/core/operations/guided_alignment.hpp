#pragma once

#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <memory>
#include <string>

namespace heddle {

struct GuidedAlignmentProblem {
  DType dtype = DType::float32;  ///< dtype of queries and keys
  std::int64_t head_dim = 0;
};
std::string describe(GuidedAlignmentProblem const& problem);

/// One head of cross-attention: sequence i of `queries` attends to sequence i of `keys`.
struct GuidedAlignmentCall {
  Tensor q;  ///< [target rows, head_dim], rows may be strided
  Tensor k;  ///< [source rows, head_dim], rows may be strided
  Sequences queries;
  Sequences keys;
  double scale = 1;  ///< the score of a query and a key is scale * q · k
  AlignedTokens alignment;

  GuidedAlignmentProblem problem() const { return {q.dtype(), q.dim(1)}; }
};

/// The cross-entropy of attention weights and given alignments (Chen et al. 2016; Marian's "ce"): the loss of a row
/// that is aligned with n keys is the mean of -log(weight) over these, the weights being the softmax of the row's
/// scores. Rows that are not aligned have none.
class GuidedAlignment : public Operation<GuidedAlignmentProblem> {
 public:
  static constexpr char const* operation = "guided_alignment";
  static std::shared_ptr<GuidedAlignment> observed(ObservedSelection<GuidedAlignment> selection);
  /// rows = [target rows, 2] in float64: log Σ exp(score) and the loss, both 0 for a row without one; sum [1] in
  /// float64
  /// += factor * the losses, row after row.
  virtual void forward(Execution& execution, GuidedAlignmentCall const& call, Tensor const& rows, double factor,
                       Tensor const& sum) = 0;
  /// grad_q and grad_k, in statistics_dtype, = factor * the gradient of the losses' sum, added up in a fixed order.
  /// `rows` are forward's.
  virtual void backward(Execution& execution, GuidedAlignmentCall const& call, Tensor const& rows, double factor,
                        Tensor const& grad_q, Tensor const& grad_k) = 0;
};

/// The front end of implementations: calls `Functions`, a class with these members.
/// - `template <class Element> static void forward(execution, call, rows, factor, sum)`
/// - `template <class Element> static void backward(execution, call, rows, factor, grad_q, grad_k)`
template <class Functions>
class GuidedAlignmentFrontEnd final : public GuidedAlignment {
 public:
  bool supports(GuidedAlignmentProblem const& problem) const override { return problem.dtype != DType::int32; }
  void forward(Execution& execution, GuidedAlignmentCall const& call, Tensor const& rows, double factor,
               Tensor const& sum) override {
    rows.require(DType::float64, {call.q.dim(0), 2}, "guided_alignment's rows");
    call.alignment.begin.require(DType::int32, {call.q.dim(0) + 1}, "guided_alignment's alignment");
    kernels::with_floating(call.q.dtype(), [&]<class Element>(Element) {
      Functions::template forward<Element>(execution, call, rows, factor, sum);
    });
  }
  void backward(Execution& execution, GuidedAlignmentCall const& call, Tensor const& rows, double factor,
                Tensor const& grad_q, Tensor const& grad_k) override {
    kernels::with_floating(call.q.dtype(), [&]<class Element>(Element) {
      Functions::template backward<Element>(execution, call, rows, factor, grad_q, grad_k);
    });
  }
};

}  // namespace heddle
