#pragma once

#include <cmath>
#include <heddle/core/operations/attention.hpp>
#include <numeric>

#include "kernel_fixture.hpp"

namespace heddle::testing_support {

/// Scores, masks, biases and shared heads of keys.
struct AttentionCase {
  char const* name;
  std::vector<std::int32_t> queries;
  std::vector<std::int32_t> keys;
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

  /// The case with a function of the scores.
  AttentionCase with(std::shared_ptr<AttentionScore const> of_scores) const {
    AttentionCase result = *this;
    result.score = ScoreKind::function;
    result.function = std::move(of_scores);
    return result;
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
    std::int64_t const key_rows = total(test.keys);
    std::int64_t const width = test.heads * test.head_dim;
    std::int64_t const key_width = test.kv_heads * test.head_dim;
    Tensor const keys_and_values = random_tensor(dtype, {key_rows, 2 * key_width}, 6);
    Tensor const grad = Tensor::allocate(dtype, {key_rows, 2 * key_width});
    call = {.q = random_tensor(dtype, {rows, width}, 5),
            .k = keys_and_values.columns(0, key_width),
            .v = keys_and_values.columns(key_width, key_width),
            .queries = sequences_of(test.queries),
            .keys = sequences_of(test.keys),
            .heads = test.heads,
            .kv_heads = test.kv_heads,
            .scale = 1.5 / std::sqrt(static_cast<double>(test.head_dim)),
            .score = test.score,
            .function = test.function,
            .soft_cap = test.soft_cap,
            .mask = test.mask};
    gradients = {Tensor::allocate(dtype, {rows, width}), grad.columns(0, key_width),
                 grad.columns(key_width, key_width)};
    if (test.mask.is(MaskKind::prefix)) {
      std::vector<std::int32_t> prefixes(test.keys.size());
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
      call.key_position = int_tensor(spread_positions(test.keys, 1));
    }
    if (test.dropout > 0) {
      call.dropout = dropout_of(test.dropout, rows);
    }
    output = Tensor::allocate(dtype, {rows, width});
    log_sum_exp = Tensor::allocate(statistics_dtype(dtype), {rows, test.heads});
    grad_output = random_tensor(dtype, {rows, width}, 7);
  }
};

}  // namespace heddle::testing_support
