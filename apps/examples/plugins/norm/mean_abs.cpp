// A plug-in: the kind of norm "mean_abs", x / (mean(|x|) + ε) * weight, with an L1 norm in place of RMSNorm's L2
// (Hoffer et al. 2018). A kind is an implementation of residual_norm that supports it: model.norm_kind names it.

#include <cmath>
#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/plugins/entry.hpp>
#include <heddle/core/trials/trials.hpp>

namespace mean_abs_plugin {

using heddle::Execution;
using heddle::ResidualNormCall;
using heddle::ResidualNormGradients;
using heddle::ResidualNormOutput;
using heddle::Tensor;
namespace kernels = heddle::kernels;

struct MeanAbs {
  static bool supports(heddle::ResidualNormProblem const& problem) {
    return problem.kind == "mean_abs" && !problem.bias;
  }

  /// sum = residual + dropout(branch) and its norm; either may be left out.
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) {
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
            normalized[row][c] =
                kernels::narrow<Element>(kernels::wide<Real>(sum[row][c]) * reciprocal[row] * weight[c]);
          }
        });
  }

  /// With g = grad_normalized * weight and r the reciprocal, the gradient of x is r * g - sign(x) * r² * mean(g * x).
  /// Then that of the sum is added, and dropout's branch gets its share.
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                       Tensor const& grad_normalized, Tensor const& grad_sum, ResidualNormGradients const& gradients) {
    add_weight_gradient<Element>(execution, output, grad_normalized, gradients);
    auto const sum = kernels::rows_of<Element>(output.sum);
    auto const grad_norm = kernels::rows_of<Element>(grad_normalized);
    auto const grad_rest = kernels::rows_of<Element>(grad_sum);
    auto const grad_residual = kernels::rows_of<Element>(gradients.residual);
    auto const grad_branch = kernels::rows_of<Element>(gradients.branch);
    Real const* const weight = call.weight.empty() ? nullptr : call.weight.data<Real>();
    Real const* const reciprocal = weight == nullptr ? nullptr : output.reciprocal_deviation.data<Real>();
    kernels::DropoutRule const dropout(call.dropout);
    std::int64_t const columns = call.residual.dim(1);
    kernels::for_each(
        execution, "mean_abs backward", call.residual.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
          bool const norm = weight != nullptr && grad_norm;
          Real const factor = norm ? reciprocal[row] : 0;
          Real projection = 0;
          for (std::int64_t c = 0; norm && c < columns; ++c) {
            projection += kernels::wide<Real>(grad_norm[row][c]) * weight[c] * kernels::wide<Real>(sum[row][c]);
          }
          projection *= factor * factor / static_cast<Real>(columns);
          for (std::int64_t c = 0; c < columns; ++c) {
            auto const x = kernels::wide<Real>(sum[row][c]);
            Real const sign = static_cast<Real>(x > 0) - static_cast<Real>(x < 0);
            Real grad = norm ? kernels::wide<Real>(grad_norm[row][c]) * weight[c] * factor - sign * projection : 0;
            grad += grad_rest ? kernels::wide<Real>(grad_rest[row][c]) : 0;
            if (grad_branch) {
              grad_branch[row][c] = kernels::narrow<Element>(grad * static_cast<Real>(dropout.multiplier(row, c)));
            }
            grad_residual[row][c] = kernels::narrow<Element>(grad);  // the last: it may overwrite what it is made from
          }
        });
  }

  /// Sums over rows, each column's in their order: the same in every run.
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void add_weight_gradient(Execution& execution, ResidualNormOutput const& output, Tensor const& grad_normalized,
                                  ResidualNormGradients const& gradients) {
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
};

std::vector<double> definition(std::span<double const> row, double epsilon) {
  double sum = 0;
  for (double const x : row) {
    sum += std::abs(x);
  }
  std::vector<double> normalized(row.begin(), row.end());
  for (double& x : normalized) {
    x /= sum / static_cast<double>(row.size()) + epsilon;
  }
  return normalized;
}

void register_all(heddle::Registries& registries) {
  registries.kernels.of<heddle::ResidualNorm>().add("mean_abs", 10,
                                                    std::make_shared<heddle::ResidualNormFrontEnd<MeanAbs>>());
  heddle::add_norm_trials(registries.kernels, "mean_abs", definition);
}

}  // namespace mean_abs_plugin

HEDDLE_PLUGIN(mean_abs_plugin::register_all)
