#include <fmt/format.h>

#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/residual_norm.hpp>

namespace heddle {

namespace {

class ObservedResidualNorm final : public ObservedKernel<ResidualNorm> {
 public:
  using ObservedKernel::ObservedKernel;

  void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) override {
    auto description = traffic("forward", {call.residual, call.branch, output.sum, output.normalized, output.mean,
                                           output.reciprocal_deviation});
    complete(description, call, !output.normalized.empty());
    pass<&ResidualNorm::forward>(execution, description, call, output);
  }
  void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                Tensor const& grad_normalized, Tensor const& grad_sum,
                ResidualNormGradients const& gradients) override {
    auto description = traffic("backward", {output.sum, output.mean, output.reciprocal_deviation, grad_normalized,
                                            grad_sum, gradients.residual, gradients.branch});
    complete(description, call, !grad_normalized.empty());
    pass<&ResidualNorm::backward>(execution, description, call, output, grad_normalized, grad_sum, gradients);
  }

 private:
  static void complete(CallDescription& description, ResidualNormCall const& call, bool norm) {
    description.variant = call.branch.empty() ? (norm ? "of a norm" : "") : (norm ? "of sum and norm" : "of a sum");
    description.extents = fmt::format("{} rows", call.residual.dim(0));
    description.dtype = call.residual.dtype();
  }
};

std::string prefix_of(std::string_view kind) {
  return kind == NormKind::layer ? "" : fmt::format("{} norm, ", kind);
}

/// The bytes of `matrices` [rows, d_model] tensors and vectors of statistics.
Cost moved(ResidualNormProblem const& problem, double rows, double matrices, double statistics) {
  return {0, rows * (matrices * static_cast<double>(problem.d_model) * static_cast<double>(size_of(problem.dtype)) +
                     statistics * static_cast<double>(size_of(statistics_dtype(problem.dtype))))};
}

}  // namespace

std::string describe(ResidualNormProblem const& problem) {
  return fmt::format("{}{} columns of {} with dropout {}{}", prefix_of(problem.kind), problem.d_model,
                     name_of(problem.dtype), problem.dropout_rate, problem.bias ? "" : ", without bias");
}

std::string timing_key(ResidualNormProblem const& problem) {
  return fmt::format("{}{} columns of {}{}{}", prefix_of(problem.kind), problem.d_model, name_of(problem.dtype),
                     problem.dropout_rate > 0 ? ", dropout" : "", problem.bias ? "" : ", without bias");
}

Cost forward_cost(ResidualNormProblem const& problem, double rows) {
  return moved(problem, rows, 4, 2);
}

Cost backward_cost(ResidualNormProblem const& problem, double rows) {
  return moved(problem, rows, 5, 2);
}

std::shared_ptr<ResidualNorm> ResidualNorm::observed(ObservedSelection<ResidualNorm> selection) {
  return std::make_shared<ObservedResidualNorm>(std::move(selection));
}

}  // namespace heddle
