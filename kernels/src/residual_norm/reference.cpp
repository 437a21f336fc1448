#include "support/factories.hpp"
#include "view.hpp"

namespace heddle {
namespace {

using kernels::NormView;

/// `double` holds every floating element exactly.
template <class Element>
KOKKOS_INLINE_FUNCTION double wide(Element element) {
  return kernels::wide<double>(element);
}

/// One work item for each column, so that the rows' contributions add up in their order.
template <class Element, class Statistic = kernels::ArithmeticType<Element>>
void add_weight_gradients(Execution& execution, NormView<Element> const& of, kernels::Rows<Element> const& grad,
                          ResidualNormGradients const& gradients) {
  auto* const grad_weight = kernels::rows_of<Statistic>(gradients.weight).data;
  auto* const grad_bias = kernels::rows_of<Statistic>(gradients.bias).data;
  kernels::for_each(
      execution, "reference norm weight gradients", of.columns, KOKKOS_LAMBDA(std::int64_t c) {
        double of_weight = 0;
        double of_bias = 0;
        for (std::int64_t row = 0; row < of.rows; ++row) {
          double const standard = (wide(of.sum[row][c]) - of.mean[row]) * of.reciprocal[row];
          of_weight += wide(grad[row][c]) * standard;
          of_bias += wide(grad[row][c]);
        }
        grad_weight[c] += static_cast<Statistic>(of_weight);
        if (grad_bias != nullptr) {
          grad_bias[c] += static_cast<Statistic>(of_bias);
        }
      });
}

struct ReferenceResidualNorm {
  static bool supports(ResidualNormProblem const& problem) { return built_in_norm(problem.kind) != nullptr; }

  template <class Element>
  static void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) {
    using Statistic = kernels::ArithmeticType<Element>;
    NormView<Element> const of(call, output);
    kernels::NormRule<double> const rule(call.kind, of.columns, call.epsilon);
    kernels::for_each(
        execution, "reference residual norm forward", of.rows, KOKKOS_LAMBDA(std::int64_t row) {
          for (std::int64_t c = 0; of.sum && c < of.columns; ++c) {
            double const added = of.branch ? wide(of.branch[row][c]) * of.dropout.multiplier(row, c) : 0.0;
            of.sum[row][c] = kernels::narrow<Element>(wide(of.residual[row][c]) + added);
          }
          if (of.weight == nullptr) {
            return;
          }
          Element const* const x = of.normed(row);
          double total = 0;
          for (std::int64_t c = 0; c < of.columns; ++c) {
            total += wide(x[c]);
          }
          double const average = rule.centred ? total / static_cast<double>(of.columns) : 0.0;
          double squares = 0;
          for (std::int64_t c = 0; c < of.columns; ++c) {
            squares += (wide(x[c]) - average) * (wide(x[c]) - average);
          }
          double const reciprocal = rule.reciprocal(squares);
          for (std::int64_t c = 0; c < of.columns; ++c) {
            of.normalized[row][c] = kernels::narrow<Element>((wide(x[c]) - average) * reciprocal * of.weight[c] +
                                                             (of.bias != nullptr ? of.bias[c] : 0));
          }
          of.mean[row] = static_cast<Statistic>(average);
          of.reciprocal[row] = static_cast<Statistic>(reciprocal);
        });
  }

  template <class Element>
  static void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                       Tensor const& grad_normalized, Tensor const& grad_sum, ResidualNormGradients const& gradients) {
    NormView<Element> const of(call, output);
    kernels::NormGradientRows<Element> const rows(grad_normalized, grad_sum, gradients);
    if (rows.grad_normalized) {
      add_weight_gradients(execution, of, rows.grad_normalized, gradients);
    }
    kernels::NormRule<double> const rule(call.kind, of.columns, call.epsilon);
    kernels::for_each(
        execution, "reference residual norm backward", of.rows, KOKKOS_LAMBDA(std::int64_t row) {
          Element const* const x = of.sum[row];
          Element const* const grad_norm = rows.grad_normalized ? rows.grad_normalized[row] : nullptr;
          double const average = grad_norm != nullptr ? of.mean[row] : 0;
          double const reciprocal = grad_norm != nullptr ? of.reciprocal[row] : 0;
          double mean_grad = 0;
          double mean_grad_standard = 0;
          for (std::int64_t c = 0; grad_norm != nullptr && c < of.columns; ++c) {
            double const grad = wide(grad_norm[c]) * of.weight[c];
            mean_grad += rule.centred ? grad / static_cast<double>(of.columns) : 0.0;
            mean_grad_standard += grad * (wide(x[c]) - average) * reciprocal / rule.divisor;
          }
          for (std::int64_t c = 0; c < of.columns; ++c) {
            double grad = rows.grad_sum ? wide(rows.grad_sum[row][c]) : 0.0;
            if (grad_norm != nullptr) {
              double const standard = (wide(x[c]) - average) * reciprocal;
              grad += reciprocal * (wide(grad_norm[c]) * of.weight[c] - mean_grad - standard * mean_grad_standard);
            }
            if (rows.grad_branch) {
              rows.grad_branch[row][c] = kernels::narrow<Element>(grad * of.dropout.multiplier(row, c));
            }
            rows.grad_residual[row][c] = kernels::narrow<Element>(grad);
          }
        });
  }
};

}  // namespace

void add_residual_norm_kernels(KernelRegistries& registries) {
  registries.of<ResidualNorm>().add("reference", priorities::reference,
                                    std::make_shared<ResidualNormFrontEnd<ReferenceResidualNorm>>());
}

}  // namespace heddle
