#pragma once

#include <cmath>
#include <heddle/core/operations/attention.hpp>
#include <numeric>

#include "kernel_fixture.hpp"

namespace heddle {

/// Scores, masks, biases and shared heads of keys.
struct AttentionCase {
  char const* name;
  std::vector<std::int32_t> queries;
  std::vector<std::int32_t> keys;  ///< empty: the queries' own tokens, as columns of one matrix with the queries
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 1;
  AttentionMask mask{};
  std::int64_t bias_reach = -1;  ///< below 0: no bias
  float dropout = 0;
  bool spread = false;  ///< positions are given and have gaps
  ScoreKind score = ScoreKind::dot_product;
  double soft_cap = 0;
  std::shared_ptr<AttentionScore const> function = {};

  std::vector<std::int32_t> const& key_lengths() const { return keys.empty() ? queries : keys; }
  /// The case with other scores.
  AttentionCase with(ScoreKind kind, double cap = 0, std::shared_ptr<AttentionScore const> of_scores = {}) const {
    AttentionCase result = *this;
    result.score = kind;
    result.soft_cap = cap;
    result.function = std::move(of_scores);
    return result;
  }
  AttentionCase with(std::shared_ptr<AttentionScore const> of_scores) const {
    return with(ScoreKind::function, 0, std::move(of_scores));
  }
};

inline void PrintTo(AttentionCase const& tested, std::ostream* out) {
  *out << tested.name;
}

inline std::int64_t total(std::vector<std::int32_t> const& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

/// Ascending in each sequence, with a gap after every third.
inline std::vector<std::int32_t> spread_positions(std::vector<std::int32_t> const& lengths, std::int32_t first) {
  std::vector<std::int32_t> positions;
  for (std::int32_t const length : lengths) {
    for (std::int32_t i = 0; i < length; ++i) {
      positions.push_back(first + i + 2 * (i / 3));
    }
  }
  return positions;
}

/// One case's inputs and outputs in one dtype. Gradients of parameters start at 0.5, because kernels add to them.
struct AttentionTensors {
  AttentionCall call;
  Tensor output, log_sum_exp, grad_output;
  AttentionGradients gradients;

  AttentionTensors(AttentionCase const& test, DType dtype) {
    std::int64_t const rows = total(test.queries);
    std::int64_t const key_rows = total(test.key_lengths());
    std::int64_t const width = test.heads * test.head_dim;
    std::int64_t const key_width = test.kv_heads * test.head_dim;
    std::int64_t const own = test.keys.empty() ? width : 0;  // columns of queries beside those of keys and values
    Tensor const fused = random_tensor(dtype, {key_rows, own + 2 * key_width}, 6);
    Tensor const grad = Tensor::allocate(dtype, {key_rows, own + 2 * key_width});
    call = {.q = own > 0 ? fused.columns(0, width) : random_tensor(dtype, {rows, width}, 5),
            .k = fused.columns(own, key_width),
            .v = fused.columns(own + key_width, key_width),
            .queries = sequences_of(test.queries),
            .keys = sequences_of(test.key_lengths()),
            .heads = test.heads,
            .kv_heads = test.kv_heads,
            .scale = 1.5 / std::sqrt(static_cast<double>(test.head_dim)),
            .score = test.score,
            .function = test.function,
            .soft_cap = test.soft_cap,
            .mask = test.mask};
    gradients = {own > 0 ? grad.columns(0, width) : Tensor::allocate(dtype, {rows, width}),
                 grad.columns(own, key_width), grad.columns(own + key_width, key_width)};
    if (test.mask.is(MaskKind::prefix)) {
      std::vector<std::int32_t> prefixes(test.key_lengths().size());
      std::iota(prefixes.begin(), prefixes.end(), 1);
      call.prefix_length = int_tensor(prefixes);
    }
    if (test.bias_reach >= 0) {
      Shape const shape{test.heads, 2 * test.bias_reach + 1};
      call.bias = random_tensor(statistics_dtype(dtype), shape, 8);
      gradients.bias = tensor_of(Values(static_cast<std::size_t>(shape.size()), 0.5), statistics_dtype(dtype), shape);
    }
    if (test.score == ScoreKind::additive) {
      Shape const shape{test.heads, test.head_dim};
      call.score_weight = random_tensor(statistics_dtype(dtype), shape, 9);
      gradients.score_weight =
          tensor_of(Values(static_cast<std::size_t>(shape.size()), 0.5), statistics_dtype(dtype), shape);
    }
    if (test.spread) {
      call.query_position = int_tensor(spread_positions(test.queries, 4));
      call.key_position = int_tensor(spread_positions(test.key_lengths(), 1));
    }
    if (test.dropout > 0) {
      call.dropout = dropout_of(test.dropout, rows);
      call.dropout.first_column = 2;
    }
    output = Tensor::allocate(dtype, {rows, width});
    log_sum_exp = Tensor::allocate(statistics_dtype(dtype), {rows, test.heads});
    grad_output = random_tensor(dtype, {rows, width}, 7);
  }
};

class AttentionCaseTest : public BuiltInKernelsTest, public testing::WithParamInterface<AttentionCase> {
 protected:
  void run(Attention& kernel, AttentionTensors const& problem) {
    ASSERT_TRUE(kernel.supports(problem.call.problem()));
    kernel.forward(execution_, problem.call, problem.output, problem.log_sum_exp);
    kernel.backward(execution_, problem.call, problem.output, problem.log_sum_exp, problem.grad_output,
                    problem.gradients);
  }
  /// The problem with the results of the implementation of that name.
  AttentionTensors run(std::string const& name, AttentionTensors problem) {
    run(kernel(name, problem.call.problem()), problem);
    return problem;
  }
  Attention& kernel(std::string const& name, AttentionProblem const& problem) {
    return *registries_.of<Attention>().select(name, problem);
  }
  Attention& reference() { return kernel("reference", {}); }
};

}  // namespace heddle
