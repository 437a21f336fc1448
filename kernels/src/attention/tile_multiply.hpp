#pragma once

#include <heddle/core/operations/elements.hpp>

// Keeps GCC from unrolling a loop of 16 before it recognises that the loop is one vector.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define HEDDLE_KEEP_LOOP _Pragma("GCC unroll 1")
#else
#define HEDDLE_KEEP_LOOP
#endif

/// Products of small matrices that lie in cache.
namespace heddle::kernels {

constexpr std::int64_t tile_rows = 4;
constexpr std::int64_t tile_columns = 16;

KOKKOS_INLINE_FUNCTION std::int64_t round_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// The left factor, element (row, column) at data[row * row_stride + column * column_stride].
template <class Real>
struct Factor {
  Real const* data;
  std::int64_t row_stride;
  std::int64_t column_stride;
};

template <class Real>
struct Tile {
  Real* data;
  std::int64_t stride;

  KOKKOS_INLINE_FUNCTION Real* operator[](std::int64_t row) const { return data + row * stride; }
  KOKKOS_INLINE_FUNCTION Factor<Real> plain() const { return {data, stride, 1}; }
  KOKKOS_INLINE_FUNCTION Factor<Real> transposed() const { return {data, 1, stride}; }
};

struct ProductExtents {
  std::int64_t rows, columns, depth;
};

/// c = a b, or c += a b. Rows are rounded up to tile_rows and columns to tile_columns: the tiles must have room for
/// them.
template <bool accumulate, class Real>
HEDDLE_ONE_COPY void multiply(Factor<Real> a, Tile<Real> b, Tile<Real> c, ProductExtents extents) {
  for (std::int64_t column = 0; column < extents.columns; column += tile_columns) {
    for (std::int64_t row = 0; row < extents.rows; row += tile_rows) {
      Real sums[tile_rows][tile_columns] = {};
      for (std::int64_t step = 0; step < extents.depth; ++step) {
        Real const* const left = a.data + row * a.row_stride + step * a.column_stride;
        Real const* const right = b[step] + column;
        for (std::int64_t i = 0; i < tile_rows; ++i) {
          Real const factor = left[i * a.row_stride];
          HEDDLE_KEEP_LOOP
          for (std::int64_t j = 0; j < tile_columns; ++j) {
            sums[i][j] += factor * right[j];
          }
        }
      }
      for (std::int64_t i = 0; i < tile_rows; ++i) {
        Real* const to = c[row + i] + column;
        for (std::int64_t j = 0; j < tile_columns; ++j) {
          to[j] = accumulate ? to[j] + sums[i][j] : sums[i][j];
        }
      }
    }
  }
}

}  // namespace heddle::kernels
