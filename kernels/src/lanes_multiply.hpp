#pragma once

#include "lanes.hpp"
#include "tile_multiply.hpp"

/// Products of small matrices that lie in cache, near the machine's peak.
namespace heddle::lanes {

/// c = a b, or c += a b where `add`. Rows are as many as they are; columns are whole vectors.
struct Product {
  parts::Factor<float> a;
  parts::Tile<float> b, c;
  std::int64_t depth;
  bool add = false;
};

template <int rows, int vectors>
inline void multiply_block(Product const& product, std::int64_t row, std::int64_t column) {
  Floats sums[rows][vectors] = {};
  std::int64_t const row_stride = product.a.row_stride;
  float const* left = product.a.data + row * row_stride;
  float const* right = product.b.data + column;
  for (std::int64_t step = 0; step < product.depth; ++step) {
    Floats factors[vectors];
    for (int v = 0; v < vectors; ++v) {
      factors[v] = load(right + v * width);
    }
    for (int i = 0; i < rows; ++i) {
      for (int v = 0; v < vectors; ++v) {
        sums[i][v] += left[i * row_stride] * factors[v];
      }
    }
    left += product.a.column_stride;
    right += product.b.stride;
  }
  for (int i = 0; i < rows; ++i) {
    float* const to = product.c[row + i] + column;
    for (int v = 0; v < vectors; ++v) {
      store(product.add ? load(to + v * width) + sums[i][v] : sums[i][v], to + v * width);
    }
  }
}

template <int max_rows, int vectors>
inline void multiply_rows(Product const& product, std::int64_t row, std::int64_t rows, std::int64_t column) {
  if constexpr (max_rows > 1) {
    if (rows < max_rows) {
      return multiply_rows<max_rows - 1, vectors>(product, row, rows, column);
    }
  }
  multiply_block<max_rows, vectors>(product, row, column);
}

/// Blocks of rows of even height, because short ones leave the units idle.
template <int max_rows, int vectors>
inline void multiply_columns(Product const& product, std::int64_t rows, std::int64_t column) {
  std::int64_t blocks = (rows + max_rows - 1) / max_rows;
  for (std::int64_t row = 0; row < rows; --blocks) {
    std::int64_t const height = (rows - row + blocks - 1) / blocks;
    multiply_rows<max_rows, vectors>(product, row, height, column);
    row += height;
  }
}

/// With 32 registers, 24 sums and what they are made of stay in them.
inline void multiply(Product const& product, std::int64_t rows, std::int64_t columns) {
  std::int64_t column = 0;
  for (; columns - column >= 4 * width; column += 4 * width) {
    multiply_columns<6, 4>(product, rows, column);
  }
  for (; columns - column >= 2 * width; column += 2 * width) {
    multiply_columns<8, 2>(product, rows, column);
  }
  if (column < columns) {
    multiply_columns<8, 1>(product, rows, column);
  }
}

}  // namespace heddle::lanes
