#pragma once

#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/operations/residual_norm.hpp>

namespace heddle::kernels {

/// A call for both directions, as raw pointers; null where the call has no such tensor.
template <class Element>
struct NormView {
  using Real = ArithmeticType<Element>;

  Rows<Element> residual, branch;
  Real const* weight;
  Real const* bias;
  Rows<Element> sum, normalized;
  Real* mean;
  Real* reciprocal;  ///< 1 / deviation
  DropoutRule dropout;
  std::int64_t rows, columns;
  NormRule<Real> rule;

  NormView(ResidualNormCall const& call, ResidualNormOutput const& output)
      : residual(rows_of<Element>(call.residual)),
        branch(rows_of<Element>(call.branch)),
        weight(rows_of<Real>(call.weight).data),
        bias(rows_of<Real>(call.bias).data),
        sum(rows_of<Element>(output.sum)),
        normalized(rows_of<Element>(output.normalized)),
        mean(rows_of<Real>(output.mean).data),
        reciprocal(rows_of<Real>(output.reciprocal_deviation).data),
        dropout(call.dropout),
        rows(call.residual.dim(0)),
        columns(call.residual.dim(1)),
        rule(call.kind, columns, call.epsilon) {}

  /// The row that is normalized.
  KOKKOS_INLINE_FUNCTION Element const* normed(std::int64_t row) const { return sum ? sum[row] : residual[row]; }
};

/// The gradients of a backward call that have rows.
template <class Element>
struct NormGradientRows {
  Rows<Element> grad_normalized, grad_sum, grad_residual, grad_branch;

  NormGradientRows(Tensor const& of_normalized, Tensor const& of_sum, ResidualNormGradients const& gradients)
      : grad_normalized(rows_of<Element>(of_normalized)),
        grad_sum(rows_of<Element>(of_sum)),
        grad_residual(rows_of<Element>(gradients.residual)),
        grad_branch(rows_of<Element>(gradients.branch)) {}
};

}  // namespace heddle::kernels
