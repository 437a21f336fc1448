#pragma once

#include <immintrin.h>

#include "attention/tile_multiply.hpp"
#include "support/tile_configuration.hpp"

/// Products of bfloat16 in matrix registers (AMX), with sums in float32. A register holds 16 rows of 64 bytes.
namespace heddle::amx_attention {

using kernels::round_up;
using kernels::Tile;

constexpr std::int64_t register_rows = 16;
/// The elements of the products' sums that one operation multiplies.
constexpr std::int64_t step = 32;

/// A product's left factor, rows of bfloat16: whole registers can be read.
struct Left {
  void const* data;
  std::int64_t stride;  ///< bytes
};

/// A product in whole registers: 16 rows, 16 columns, and steps of 32 elements of each sum. The rows of `right` have a
/// pair of bfloat16 of each column.
struct Product {
  Left left;
  Tile<float> right;
  std::int64_t rows, columns, steps;

  /// `depth`: the elements of each sum.
  Product(Left const& a, Tile<float> b, std::int64_t row_count, std::int64_t column_count, std::int64_t depth)
      : left(a),
        right(b),
        rows((row_count + register_rows - 1) / register_rows),
        columns((column_count + register_rows - 1) / register_rows),
        steps((depth + step - 1) / step) {}
};

/// The registers' configuration in this thread, which products need.
class Configured {
 public:
  Configured() {
    static constexpr TileConfiguration configuration;
    _tile_loadconfig(&configuration);
  }
  Configured(Configured const&) = delete;
  Configured& operator=(Configured const&) = delete;
  ~Configured() { _tile_release(); }
};

/// A product that nothing uses. After about 300 cycles without one the unit that multiplies registers sleeps, and the
/// next product waits 700 cycles for it (Sapphire Rapids): more than the vectors' part of a short sequence takes.
inline void keep_awake() {
  _tile_dpbf16ps(3, 5, 7);
}

/// The registers of `to`, one or two by one or two, = or += a part of a product.
template <int rows, int columns, bool accumulate>
inline void multiply_registers(Left left, Tile<float> right, std::int64_t steps, Tile<float> to) {
  std::int64_t const to_stride = to.stride * 4;
  std::int64_t const right_stride = right.stride * 4;
  float* const below = to[register_rows];
  if constexpr (accumulate) {
    _tile_loadd(0, to.data, to_stride);
    if constexpr (columns > 1) {
      _tile_loadd(1, to.data + register_rows, to_stride);
    }
    if constexpr (rows > 1) {
      _tile_loadd(2, below, to_stride);
    }
    if constexpr (rows > 1 && columns > 1) {
      _tile_loadd(3, below + register_rows, to_stride);
    }
  } else {
    _tile_zero(0);
    if constexpr (columns > 1) {
      _tile_zero(1);
    }
    if constexpr (rows > 1) {
      _tile_zero(2);
    }
    if constexpr (rows > 1 && columns > 1) {
      _tile_zero(3);
    }
  }
  auto const* a = static_cast<char const*>(left.data);
  float const* b = right.data;
  for (std::int64_t s = 0; s < steps; ++s) {
    _tile_loadd(6, b, right_stride);
    _tile_loadd(4, a, left.stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (columns > 1) {
      _tile_loadd(7, b + register_rows, right_stride);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (rows > 1) {
      _tile_loadd(5, a + register_rows * left.stride, left.stride);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (rows > 1 && columns > 1) {
      _tile_dpbf16ps(3, 5, 7);
    }
    a += step * 2;
    b += register_rows * right.stride;
  }
  _tile_stored(0, to.data, to_stride);
  if constexpr (columns > 1) {
    _tile_stored(1, to.data + register_rows, to_stride);
  }
  if constexpr (rows > 1) {
    _tile_stored(2, below, to_stride);
  }
  if constexpr (rows > 1 && columns > 1) {
    _tile_stored(3, below + register_rows, to_stride);
  }
}

/// to = or += the product; whole registers are written.
template <bool accumulate>
inline void multiply(Product const& product, Tile<float> to) {
  // Loads of registers do not say that they read memory: what was written before must be there.
  __asm__ volatile("" ::: "memory");
  for (std::int64_t row = 0; row < product.rows; row += 2) {
    bool const two_rows = product.rows - row > 1;
    Left const left{static_cast<char const*>(product.left.data) + row * register_rows * product.left.stride,
                    product.left.stride};
    for (std::int64_t column = 0; column < product.columns; column += 2) {
      Tile<float> const right{product.right.data + column * register_rows, product.right.stride};
      Tile<float> const sums{to[row * register_rows] + column * register_rows, to.stride};
      if (product.columns - column > 1) {
        two_rows ? multiply_registers<2, 2, accumulate>(left, right, product.steps, sums)
                 : multiply_registers<1, 2, accumulate>(left, right, product.steps, sums);
      } else {
        two_rows ? multiply_registers<2, 1, accumulate>(left, right, product.steps, sums)
                 : multiply_registers<1, 1, accumulate>(left, right, product.steps, sums);
      }
    }
  }
}

}  // namespace heddle::amx_attention
