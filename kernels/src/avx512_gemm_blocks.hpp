#pragma once

#include <algorithm>
#include <heddle/core/kernels/gemm.hpp>

#include "avx512_gemm_tiles.hpp"

/// How the avx512 GEMM cuts a product into blocks and those into tiles.
namespace heddle::avx512 {

/// Rows of a that are packed at once: some 290 KiB, which stay in the L2 cache while b passes by.
constexpr std::int64_t block_rows = 19 * tile_rows;
constexpr std::int64_t packed_left_words =
    std::max(block_rows * left_row_stride, block_rows / tile_rows * left_panel_stride(block_steps));

constexpr std::int64_t quotient_up(std::int64_t count, std::int64_t divisor) {
  return (count + divisor - 1) / divisor;
}

constexpr std::int64_t packed_right_words(std::int64_t n, std::int64_t steps) {
  return quotient_up(n, tile_columns) * right_panel_stride(steps);
}

/// One call: what all its blocks have in common.
struct Product {
  GemmCall const& call;
  GemmProblem const& problem;
  Tiles const& tiles;
  std::int64_t steps;    ///< the words of a row
  std::uint32_t* right;  ///< packed b, or, where it is no weight, one block of k of it
  std::uint32_t* left;   ///< one packed block of a
  float* partial;        ///< [m, n], where c can not hold sums that are not complete; or null
};

/// Columns of op(b), elements [k_begin, k_begin + k_count) of each.
Factor right_factor(GemmCall const& call, GemmProblem const& problem, std::int64_t k_begin, std::int64_t k_count);

/// b is packed.
void multiply_by_weight(Product const& product);
/// b is packed on the way.
void multiply_once(Product const& product);

}  // namespace heddle::avx512
