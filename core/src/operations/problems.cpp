#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/adam.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/embedding.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

GemmProblem GemmCall::problem() const {
  GemmProblem problem;
  problem.dtype = a.dtype();
  problem.b_dtype = b.dtype();
  problem.output_dtype = c.dtype();
  problem.m = c.dim(0);
  problem.n = c.dim(1);
  problem.k = transpose_a ? a.dim(0) : a.dim(1);
  problem.transpose_a = transpose_a;
  problem.transpose_b = transpose_b;
  problem.accumulate = accumulate;
  problem.bias = !bias.empty();
  auto const oriented = [](bool transposed, std::int64_t rows, std::int64_t columns) {
    return transposed ? Shape{columns, rows} : Shape{rows, columns};
  };
  a.require(problem.dtype, oriented(transpose_a, problem.m, problem.k), "a GEMM's a");
  bool const rounded = problem.dtype == DType::bfloat16 && problem.b_dtype == DType::float32;
  b.require(rounded ? DType::float32 : problem.dtype, oriented(transpose_b, problem.k, problem.n), "a GEMM's b");
  if (problem.bias) {
    bias.require(parameter_dtype(problem.output_dtype), Shape{problem.n}, "a GEMM's bias");
  }
  return problem;
}

AttentionProblem AttentionCall::problem() const {
  if (heads <= 0 || q.dim(1) % heads != 0) {
    throw Error(
        fmt::format("attention with {} heads over {} columns: the heads must divide the columns", heads, q.dim(1)));
  }
  if (!query_position.empty() || !key_position.empty()) {
    query_position.require(DType::int32, {q.dim(0)}, "attention's query_position");
    key_position.require(DType::int32, {k.dim(0)}, "attention's key_position");
  }
  return {q.dtype(), heads, q.dim(1) / heads, causal, dropout.rate};
}

ResidualNormProblem ResidualNormCall::problem() const {
  return {residual.dtype(), residual.dim(1), dropout.rate};
}

SoftmaxCrossEntropyProblem SoftmaxCrossEntropyCall::problem() const {
  return {logits.dtype(), vocabulary_size};
}

EmbeddingProblem EmbeddingCall::problem(DType output) const {
  return {output, table.dtype(), table.dim(1)};
}

std::string describe(GemmProblem const& problem) {
  return fmt::format("a multiplication of {} by {} to {} with m = {}, n = {}, k = {}{}{}{}{}", name_of(problem.dtype),
                     name_of(problem.b_dtype), name_of(problem.output_dtype), problem.m, problem.n, problem.k,
                     problem.transpose_a ? ", a transposed" : "", problem.transpose_b ? ", b transposed" : "",
                     problem.accumulate ? ", accumulated" : "", problem.bias ? ", with bias" : "");
}

std::string describe(AttentionProblem const& problem) {
  return fmt::format("{} attention of {} with {} heads of {} columns and dropout {}",
                     problem.causal ? "causal" : "full", name_of(problem.dtype), problem.heads, problem.head_dim,
                     problem.dropout_rate);
}

std::string describe(ResidualNormProblem const& problem) {
  return fmt::format("{} columns of {} with dropout {}", problem.d_model, name_of(problem.dtype), problem.dropout_rate);
}

std::string describe(ActivationProblem const& problem) {
  return fmt::format("model.activation = '{}' in {} (relu and gelu are built in, plug-ins add others)",
                     problem.function, name_of(problem.dtype));
}

std::string describe(SoftmaxCrossEntropyProblem const& problem) {
  return fmt::format("a vocabulary of {} in {}", problem.vocabulary_size, name_of(problem.dtype));
}

std::string describe(EmbeddingProblem const& problem) {
  return fmt::format("{} columns of {} from a {} table", problem.d_model, name_of(problem.dtype),
                     name_of(problem.table_dtype));
}

std::string describe(AdamProblem const& problem) {
  return fmt::format("parameters of {}", name_of(problem.dtype));
}

std::string describe(TensorOpsProblem const& problem) {
  return fmt::format("tensors of {}", name_of(problem.dtype));
}

// One choice serves all of a layer's calls, so the number of rows and which of a Linear's three products it is do not
// count, nor does how much is dropped.

std::string timing_key(GemmProblem const& problem) {
  return fmt::format("{} by {} to {}, {} columns of {}", name_of(problem.dtype), name_of(problem.b_dtype),
                     name_of(problem.output_dtype), problem.n, problem.k);
}

std::string timing_key(AttentionProblem const& problem) {
  return fmt::format("{} {}, {} heads of {}{}", problem.causal ? "causal" : "full", name_of(problem.dtype),
                     problem.heads, problem.head_dim, problem.dropout_rate > 0 ? ", dropout" : "");
}

std::string timing_key(ResidualNormProblem const& problem) {
  return fmt::format("{} columns of {}{}", problem.d_model, name_of(problem.dtype),
                     problem.dropout_rate > 0 ? ", dropout" : "");
}

std::string timing_key(ActivationProblem const& problem) {
  return fmt::format("{} of {}", problem.function, name_of(problem.dtype));
}

std::string timing_key(SoftmaxCrossEntropyProblem const& problem) {
  return describe(problem);
}

std::string timing_key(EmbeddingProblem const& problem) {
  return describe(problem);
}

std::string timing_key(AdamProblem const& problem) {
  return describe(problem);
}

std::string timing_key(TensorOpsProblem const& problem) {
  return describe(problem);
}

}  // namespace heddle
