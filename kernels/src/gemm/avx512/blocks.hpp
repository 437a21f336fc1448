#pragma once

#include <algorithm>
#include <heddle/core/operations/gemm.hpp>

#include "tiles.hpp"

/// The sizes of the blocks into which the avx512 GEMM divides a product, and of their tiles.
namespace heddle::avx512 {

/// Rows of a that are packed at once: about 290 KiB, which stay in the L2 cache while the columns of b are used.
constexpr std::int64_t block_rows = 19 * tile_rows;

constexpr std::int64_t ceil_div(std::int64_t count, std::int64_t divisor) {
  return (count + divisor - 1) / divisor;
}

/// The distance, in words, from one panel of packed factors to the next.
constexpr std::int64_t left_panel_stride(std::int64_t steps) {
  return (steps + panel_gap) * left_step_stride;
}
constexpr std::int64_t right_panel_stride(std::int64_t steps) {
  return (steps + panel_gap) * tile_columns;
}

constexpr std::int64_t packed_left_words =
    std::max(block_rows * left_row_stride, block_rows / tile_rows * left_panel_stride(block_steps));

constexpr std::int64_t packed_right_words(std::int64_t n, std::int64_t steps) {
  return ceil_div(n, tile_columns) * right_panel_stride(steps);
}

/// The number of rows of c, `n` columns each, whose unfinished sums in float32 take about half of the L2 cache.
constexpr std::int64_t partial_rows(std::int64_t n) {
  constexpr std::int64_t floats = std::int64_t{128} * 1024;
  return tile_rows * std::clamp<std::int64_t>(floats / (n * tile_rows), 2, block_rows / tile_rows);
}

/// One call: the values that all its blocks share.
struct Product {
  GemmCall const& call;
  GemmProblem const& problem;
  Tiles const& tiles;
  std::int64_t steps;    ///< the words of a row
  std::uint32_t* right;  ///< all of b packed, or room for one block of k of it
  bool right_is_packed;
  std::uint32_t* left;  ///< one packed block of a
  std::int64_t rows;    ///< rows of c that are finished before others are started
  float* partial;       ///< [rows, n], where c cannot hold unfinished sums; or null
};

/// Columns of op(b), elements [k_begin, k_begin + k_count) of each.
Factor right_factor(GemmCall const& call, GemmProblem const& problem, std::int64_t k_begin, std::int64_t k_count);

void multiply(Product const& product);

}  // namespace heddle::avx512
