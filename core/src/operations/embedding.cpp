#include <fmt/format.h>

#include <heddle/core/operations/embedding.hpp>
#include <heddle/core/operations/observation.hpp>

namespace heddle {

namespace {

class ObservedEmbedding final : public ObservedKernel<Embedding> {
 public:
  using ObservedKernel::ObservedKernel;

  void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) override {
    pass<&Embedding::forward>(execution, description("forward", call, output, forward_cost), call, output);
  }
  void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output, Tensor const& grad_table,
                Tensor const& grad_positions) override {
    pass<&Embedding::backward>(execution, description("backward", call, grad_output, backward_cost), call, grad_output,
                               grad_table, grad_positions);
  }

 private:
  static CallDescription description(std::string_view direction, EmbeddingCall const& call, Tensor const& output,
                                     Cost (*cost_of)(EmbeddingProblem const&, double)) {
    return {.direction = direction,
            .variant = "",
            .extents = output.shape().to_string(),
            .dtype = output.dtype(),
            .cost = cost_of(call.problem(output.dtype()), static_cast<double>(output.dim(0)))};
  }
};

/// For each token one output row and `table_rows` rows of the table.
Cost moved(EmbeddingProblem const& problem, double tokens, double table_rows) {
  return {0, tokens * static_cast<double>(problem.d_model) *
                 (static_cast<double>(size_of(problem.dtype)) +
                  table_rows * static_cast<double>(size_of(problem.table_dtype)))};
}

}  // namespace

std::string describe(EmbeddingProblem const& problem) {
  return fmt::format("{} columns of {} from a {} table", problem.d_model, name_of(problem.dtype),
                     name_of(problem.table_dtype));
}

Cost forward_cost(EmbeddingProblem const& problem, double tokens) {
  return moved(problem, tokens, 1);
}

Cost backward_cost(EmbeddingProblem const& problem, double tokens) {
  return moved(problem, tokens, 2);
}

std::shared_ptr<Embedding> Embedding::observed(ObservedSelection<Embedding> selection) {
  return std::make_shared<ObservedEmbedding>(std::move(selection));
}

}  // namespace heddle
