#pragma once

#include <cmath>
#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/operations/residual_norm.hpp>

namespace mean_abs_plugin {

namespace kernels = heddle::kernels;

/// sum = residual + dropout(branch) and its norm; either may be left out.
template <class Element, class Real = kernels::ArithmeticType<Element>>
void forward_as(heddle::Execution& execution, heddle::ResidualNormCall const& call,
                heddle::ResidualNormOutput const& output) {
  auto const residual = kernels::rows_of<Element>(call.residual);
  auto const branch = kernels::rows_of<Element>(call.branch);
  auto const sum = kernels::rows_of<Element>(call.branch.empty() ? call.residual : output.sum);
  auto const normalized = kernels::rows_of<Element>(output.normalized);
  Real const* const weight = call.weight.empty() ? nullptr : call.weight.data<Real>();
  Real* const reciprocal = weight == nullptr ? nullptr : output.reciprocal_deviation.data<Real>();
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.residual.dim(1);
  auto const epsilon = static_cast<Real>(call.epsilon);
  kernels::for_each(
      execution, "mean_abs", call.residual.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        Real total = 0;
        for (std::int64_t c = 0; c < columns; ++c) {
          if (branch) {
            Real const kept = kernels::wide<Real>(branch[row][c]) * static_cast<Real>(dropout.multiplier(row, c));
            sum[row][c] = kernels::narrow<Element>(kernels::wide<Real>(residual[row][c]) + kept);
          }
          total += std::abs(kernels::wide<Real>(sum[row][c]));
        }
        for (std::int64_t c = 0; weight != nullptr && c < columns; ++c) {
          reciprocal[row] = 1 / (total / static_cast<Real>(columns) + epsilon);  // backward reads it
          normalized[row][c] = kernels::narrow<Element>(kernels::wide<Real>(sum[row][c]) * reciprocal[row] * weight[c]);
        }
      });
}

/// Sums over rows, each column's in their order: the same in every run.
template <class Element, class Real = kernels::ArithmeticType<Element>>
void add_weight_gradient(heddle::Execution& execution, heddle::ResidualNormOutput const& output,
                         heddle::Tensor const& grad_normalized, heddle::ResidualNormGradients const& gradients) {
  if (grad_normalized.empty() || gradients.weight.empty()) {
    return;
  }
  auto const grad = kernels::rows_of<Element>(grad_normalized);
  auto const sum = kernels::rows_of<Element>(output.sum);
  Real const* const reciprocal = output.reciprocal_deviation.data<Real>();
  Real* const grad_weight = gradients.weight.data<Real>();
  std::int64_t const rows = output.sum.dim(0);
  kernels::for_each(
      execution, "mean_abs: gradient of the weight", output.sum.dim(1), KOKKOS_LAMBDA(std::int64_t c) {
        Real total = 0;
        for (std::int64_t row = 0; row < rows; ++row) {
          total += kernels::wide<Real>(grad[row][c]) * kernels::wide<Real>(sum[row][c]) * reciprocal[row];
        }
        grad_weight[c] += total;
      });
}

}  // namespace mean_abs_plugin
