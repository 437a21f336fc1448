#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"

namespace heddle {
namespace {

/// `double` holds every floating element exactly.
template <class Element>
KOKKOS_INLINE_FUNCTION double wide(Element element) {
  return kernels::wide<double>(element);
}

/// One work item for each column, so that the rows' contributions add up in their order.
template <class Element>
void add_weight_gradients(Execution& execution, ResidualNormOutput const& output, Tensor const& grad_normalized,
                          ResidualNormGradients const& gradients) {
  using Statistic = kernels::ArithmeticType<Element>;
  auto const x = kernels::rows_of<Element>(output.sum);
  auto const mean = kernels::rows_of<Statistic>(output.mean);
  auto const reciprocal_deviation = kernels::rows_of<Statistic>(output.reciprocal_deviation);
  auto const grad = kernels::rows_of<Element>(grad_normalized);
  auto const grad_weight = kernels::rows_of<Statistic>(gradients.weight);
  auto const grad_bias = kernels::rows_of<Statistic>(gradients.bias);
  std::int64_t const rows = grad_normalized.dim(0);
  kernels::for_each(
      execution, "reference norm weight gradients", grad_normalized.dim(1), KOKKOS_LAMBDA(std::int64_t c) {
        double of_weight = 0;
        double of_bias = 0;
        for (std::int64_t row = 0; row < rows; ++row) {
          double const standard = (wide(x[row][c]) - mean.data[row]) * reciprocal_deviation.data[row];
          of_weight += wide(grad[row][c]) * standard;
          of_bias += wide(grad[row][c]);
        }
        grad_weight.data[c] += static_cast<Statistic>(of_weight);
        if (grad_bias) {
          grad_bias.data[c] += static_cast<Statistic>(of_bias);
        }
      });
}

struct ReferenceResidualNorm {
  static bool supports(ResidualNormProblem const& problem) { return built_in_norm(problem.kind) != nullptr; }

  template <class Element>
  static void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) {
    using Statistic = kernels::ArithmeticType<Element>;
    auto const residual = kernels::rows_of<Element>(call.residual);
    auto const branch = kernels::rows_of<Element>(call.branch);
    auto const weight = kernels::rows_of<Statistic>(call.weight);
    auto const bias = kernels::rows_of<Statistic>(call.bias);
    auto const sum = kernels::rows_of<Element>(output.sum);
    auto const normalized = kernels::rows_of<Element>(output.normalized);
    auto const mean = kernels::rows_of<Statistic>(output.mean);
    auto const reciprocal_deviation = kernels::rows_of<Statistic>(output.reciprocal_deviation);
    kernels::DropoutRule const dropout(call.dropout);
    std::int64_t const columns = call.residual.dim(1);
    kernels::NormRule<double> const rule(call.kind, columns, call.epsilon);
    kernels::for_each(
        execution, "reference residual norm forward", call.residual.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
          if (sum) {
            for (std::int64_t c = 0; c < columns; ++c) {
              double const added = branch ? wide(branch[row][c]) * dropout.multiplier(row, c) : 0.0;
              sum[row][c] = kernels::narrow<Element>(wide(residual[row][c]) + added);
            }
          }
          if (!weight) {
            return;
          }
          Element const* const x = sum ? sum[row] : residual[row];
          double total = 0;
          for (std::int64_t c = 0; c < columns; ++c) {
            total += wide(x[c]);
          }
          double const average = rule.centred ? total / static_cast<double>(columns) : 0.0;
          double squares = 0;
          for (std::int64_t c = 0; c < columns; ++c) {
            squares += (wide(x[c]) - average) * (wide(x[c]) - average);
          }
          double const reciprocal = rule.reciprocal(squares);
          for (std::int64_t c = 0; c < columns; ++c) {
            normalized[row][c] = kernels::narrow<Element>((wide(x[c]) - average) * reciprocal * weight.data[c] +
                                                          (bias ? bias.data[c] : 0));
          }
          mean.data[row] = static_cast<Statistic>(average);
          reciprocal_deviation.data[row] = static_cast<Statistic>(reciprocal);
        });
  }

  template <class Element>
  static void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                       Tensor const& grad_normalized, Tensor const& grad_sum, ResidualNormGradients const& gradients) {
    using Statistic = kernels::ArithmeticType<Element>;
    if (!grad_normalized.empty()) {
      add_weight_gradients<Element>(execution, output, grad_normalized, gradients);
    }
    auto const x = kernels::rows_of<Element>(output.sum);
    auto const mean = kernels::rows_of<Statistic>(output.mean);
    auto const reciprocal_deviation = kernels::rows_of<Statistic>(output.reciprocal_deviation);
    auto const weight = kernels::rows_of<Statistic>(call.weight);
    auto const grad_norm = kernels::rows_of<Element>(grad_normalized);
    auto const grad_stream = kernels::rows_of<Element>(grad_sum);
    auto const grad_residual = kernels::rows_of<Element>(gradients.residual);
    auto const grad_branch = kernels::rows_of<Element>(gradients.branch);
    kernels::DropoutRule const dropout(call.dropout);
    std::int64_t const columns = call.residual.dim(1);
    kernels::NormRule<double> const rule(call.kind, columns, call.epsilon);
    kernels::for_each(
        execution, "reference residual norm backward", call.residual.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
          double const average = grad_norm ? mean.data[row] : 0;
          double const reciprocal = grad_norm ? reciprocal_deviation.data[row] : 0;
          double mean_grad = 0;
          double mean_grad_standard = 0;
          for (std::int64_t c = 0; grad_norm && c < columns; ++c) {
            double const grad = wide(grad_norm[row][c]) * weight.data[c];
            mean_grad += rule.centred ? grad / static_cast<double>(columns) : 0.0;
            mean_grad_standard += grad * (wide(x[row][c]) - average) * reciprocal / rule.divisor;
          }
          for (std::int64_t c = 0; c < columns; ++c) {
            double grad = grad_stream ? wide(grad_stream[row][c]) : 0.0;
            if (grad_norm) {
              double const standard = (wide(x[row][c]) - average) * reciprocal;
              grad +=
                  reciprocal * (wide(grad_norm[row][c]) * weight.data[c] - mean_grad - standard * mean_grad_standard);
            }
            if (grad_branch) {
              grad_branch[row][c] = kernels::narrow<Element>(grad * dropout.multiplier(row, c));
            }
            grad_residual[row][c] = kernels::narrow<Element>(grad);
          }
        });
  }
};

}  // namespace

void add_residual_norm_kernels(KernelRegistries& registries) {
  registries.of<ResidualNorm>().add("reference", speeds::reference,
                                    std::make_shared<ResidualNormFrontEnd<ReferenceResidualNorm>>());
}

}  // namespace heddle
