#pragma once

#include "attention/tile_multiply.hpp"
#include "lanes_pairs.hpp"

/// Products of small matrices that lie in cache, near the machine's peak.
namespace heddle::lanes {

/// The elements that a product takes in one step along its depth: one float32, or two adjacent bfloat16.
template <class Element>
struct Unit;

template <>
struct Unit<float> {
  static constexpr std::int64_t elements = 1;
  using Vector = Floats;
  static Vector load(float const* from) { return lanes::load(from); }
  static Vector all(float const* from) { return lanes::all(*from); }
  static Floats multiply_add(Floats sums, Vector a, Vector b) { return sums + a * b; }
};

template <>
struct Unit<BFloat16> {
  static constexpr std::int64_t elements = 2;
  using Vector = Words;
  static Vector load(float const* from) { return load_words(from); }
  static Vector all(BFloat16 const* from) {
    std::uint32_t word;
    std::memcpy(&word, from, sizeof(word));
    return Words{} + word;
  }
  static Floats multiply_add(Floats sums, Vector a, Vector b) { return add_products_of_pairs(sums, a, b); }
};

/// The product a b. a's strides are between its elements, column_stride from one unit to the next; b's rows hold a
/// unit of each column in 32 bits.
template <class Element>
struct Product {
  kernels::Factor<Element> a;
  kernels::Tile<float> b;
  std::int64_t depth;  ///< in units
};

template <int rows, int vectors, class Element, class Take>
inline void multiply_block(Product<Element> const& product, std::int64_t row, std::int64_t column, Take const& take) {
  using Units = Unit<Element>;
  Floats sums[rows][vectors] = {};
  std::int64_t const row_stride = product.a.row_stride;
  Element const* left = product.a.data + row * row_stride;
  float const* right = product.b.data + column;
  for (std::int64_t step = 0; step < product.depth; ++step) {
    typename Units::Vector factors[vectors];
    for (int v = 0; v < vectors; ++v) {
      factors[v] = Units::load(right + v * width);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      typename Units::Vector const factor = Units::all(left + i * row_stride);
      for (int v = 0; v < vectors; ++v) {
        sums[i][v] = Units::multiply_add(sums[i][v], factor, factors[v]);
      }
    }
    left += product.a.column_stride;
    right += product.b.stride;
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    take(row + i, column, sums[i]);
  }
}

template <int max_rows, int vectors, class Element, class Take>
inline void multiply_rows(Product<Element> const& product, std::int64_t row, std::int64_t rows, std::int64_t column,
                          Take const& take) {
  if constexpr (max_rows > 1) {
    if (rows < max_rows) {
      return multiply_rows<max_rows - 1, vectors>(product, row, rows, column, take);
    }
  }
  multiply_block<max_rows, vectors>(product, row, column, take);
}

/// Blocks of rows of even height, because short ones leave the vector units idle.
template <int max_rows, int vectors, class Element, class Take>
inline void multiply_columns(Product<Element> const& product, std::int64_t rows, std::int64_t column,
                             Take const& take) {
  std::int64_t blocks = (rows + max_rows - 1) / max_rows;
  for (std::int64_t row = 0; row < rows; --blocks) {
    std::int64_t const height = (rows - row + blocks - 1) / blocks;
    multiply_rows<max_rows, vectors>(product, row, height, column, take);
    row += height;
  }
}

/// The rows of a block with 4, 2 and 1 vectors of columns: with the 32 registers of AVX-512, 24 sums and their operands
/// stay in registers; elsewhere a vector takes several of fewer registers.
#ifdef __AVX512F__
constexpr int block_rows[] = {6, 8, 16};
#else
constexpr int block_rows[] = {0, 2, 4};
#endif

/// Calls take(row, column, Floats (&sums)[vectors]) for each row of the product and a few vectors of its columns at a
/// time, a multiple of `group`, as is `columns` / width. The number of rows is arbitrary.
template <std::int64_t group, class Element, class Take>
inline void multiply(Product<Element> const& product, std::int64_t rows, std::int64_t columns, Take const& take) {
  std::int64_t column = 0;
  if constexpr (block_rows[0] > 0) {
    for (; columns - column >= 4 * width; column += 4 * width) {
      multiply_columns<block_rows[0], 4>(product, rows, column, take);
    }
  }
  for (; columns - column >= 2 * width; column += 2 * width) {
    multiply_columns<block_rows[1], 2>(product, rows, column, take);
  }
  if constexpr (group == 1) {
    if (column < columns) {
      multiply_columns<block_rows[2], 1>(product, rows, column, take);
    }
  }
}

}  // namespace heddle::lanes
