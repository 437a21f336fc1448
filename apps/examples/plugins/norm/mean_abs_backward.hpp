#pragma once

#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/operations/residual_norm.hpp>

namespace mean_abs_plugin {

namespace kernels = heddle::kernels;

struct Upstream {
  heddle::Tensor normalized, sum;
};

/// With g = grad_normalized * weight and r the reciprocal, the gradient of x is r * g - sign(x) * r² * mean(g * x).
/// Then that of the sum is added, and dropout's branch gets its share.
template <class Element>
void backward_as(heddle::Execution& execution, heddle::ResidualNormCall const& call,
                 heddle::ResidualNormOutput const& output, Upstream const& upstream,
                 heddle::ResidualNormGradients const& gradients) {
  using Real = kernels::ArithmeticType<Element>;
  auto const sum = kernels::rows_of<Element>(output.sum);
  auto const grad_normalized = kernels::rows_of<Element>(upstream.normalized);
  auto const grad_sum = kernels::rows_of<Element>(upstream.sum);
  auto const grad_residual = kernels::rows_of<Element>(gradients.residual);
  auto const grad_branch = kernels::rows_of<Element>(gradients.branch);
  Real const* const weight = call.weight.empty() ? nullptr : call.weight.data<Real>();
  Real const* const reciprocal = weight == nullptr ? nullptr : output.reciprocal_deviation.data<Real>();
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.residual.dim(1);
  kernels::for_each(
      execution, "mean_abs backward", call.residual.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        bool const norm = weight != nullptr && grad_normalized;
        Real const factor = norm ? reciprocal[row] : 0;
        Real projection = 0;
        for (std::int64_t c = 0; norm && c < columns; ++c) {
          projection += kernels::wide<Real>(grad_normalized[row][c]) * weight[c] * kernels::wide<Real>(sum[row][c]);
        }
        projection *= factor * factor / static_cast<Real>(columns);
        for (std::int64_t c = 0; c < columns; ++c) {
          auto const x = kernels::wide<Real>(sum[row][c]);
          Real const sign = static_cast<Real>(x > 0) - static_cast<Real>(x < 0);
          Real grad = norm ? kernels::wide<Real>(grad_normalized[row][c]) * weight[c] * factor - sign * projection : 0;
          grad += grad_sum ? kernels::wide<Real>(grad_sum[row][c]) : 0;
          if (grad_branch) {
            grad_branch[row][c] = kernels::narrow<Element>(grad * static_cast<Real>(dropout.multiplier(row, c)));
          }
          grad_residual[row][c] = kernels::narrow<Element>(grad);  // the last, as it may overwrite what it is made from
        }
      });
}

}  // namespace mean_abs_plugin
