#pragma once

#include <cstring>

#include "int8_products.hpp"

/// Code that all instruction sets share; `Sums` defines how a block of integer sums is computed. Everything is in an
/// unnamed namespace: the linker must not use code for newer processors in other files. Compiled without contraction
/// and reassociation (CMakeLists.txt), so that every instruction set rounds alike.
namespace heddle::int8 {
namespace {

/// A block's sums, row by row.
using Block = std::int32_t[block_rows][block_columns];

inline float number(float stored) {
  return stored;
}
inline float number(std::uint16_t stored) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(stored) << 16);
}

inline void round_to(float& to, float number) {
  to = number;
}
/// To nearest, ties to even; a NaN stays one.
inline void round_to(std::uint16_t& to, float number) {
  auto const bits = __builtin_bit_cast(std::uint32_t, number);
  std::uint32_t const rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
  to = static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? 0x7fc0U : rounded);
}

template <class Element>
void quantise_row(Element const* __restrict row, std::int64_t k, bool unsigned_rows, std::int8_t* __restrict to,
                  float& scale) {
  // Compared as integers: a NaN is the largest.
  std::int32_t max_bits = 0;
  for (std::int64_t i = 0; i < k; ++i) {
    std::int32_t const bits = __builtin_bit_cast(std::int32_t, number(row[i])) & 0x7fffffff;
    max_bits = bits > max_bits ? bits : max_bits;
  }
  auto const max = __builtin_bit_cast(float, max_bits);
  float const inverse = max > 1e-30F ? 127 / max : 0;  // of smaller ones it would not be finite
  scale = max / 127;
  std::int32_t const zero = unsigned_rows ? 128 : 0;
  for (std::int64_t i = 0; i < k; ++i) {
    to[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(__builtin_rintf(number(row[i]) * inverse)) + zero);
  }
}

inline void quantise(Rows const& rows, std::int64_t begin, std::int64_t end, bool unsigned_rows,
                     QuantisedRows const& to) {
  for (std::int64_t row = begin; row < end; ++row) {
    std::int8_t* const quantised = to.data + row * to.stride;
    if (rows.bfloat16) {
      quantise_row(static_cast<std::uint16_t const*>(rows.data) + row * rows.stride, rows.k, unsigned_rows, quantised,
                   to.scales[row]);
    } else {
      quantise_row(static_cast<float const*>(rows.data) + row * rows.stride, rows.k, unsigned_rows, quantised,
                   to.scales[row]);
    }
  }
}

/// to = or += a row of a block's sums times the scales, plus the bias; all have block_columns elements.
template <bool accumulate, class Element>
inline void write_row(std::int32_t const* __restrict sums, std::int32_t const* __restrict excesses, float row_scale,
                      float const* __restrict scales, float const* __restrict bias, Element* __restrict to) {
  for (std::int64_t j = 0; j < block_columns; ++j) {
    float const sum = static_cast<float>(sums[j] - excesses[j]) * (row_scale * scales[j]) + bias[j];
    round_to(to[j], accumulate ? sum + number(to[j]) : sum);
  }
}

template <bool unsigned_rows, class Element>
void write(Product const& product, Block const& sums, std::int64_t row, std::int64_t rows, std::int64_t column) {
  std::int64_t const left = product.n - column;
  auto const columns = static_cast<std::size_t>(left < block_columns ? left : block_columns);
  float const* const scales = product.scales + column;
  float bias[block_columns] = {};
  std::int32_t excesses[block_columns] = {};
  if (product.bias != nullptr) {
    std::memcpy(bias, product.bias + column, columns * sizeof(float));
  }
  if (unsigned_rows) {
    std::memcpy(excesses, product.excesses + column, sizeof excesses);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    Element* const c = static_cast<Element*>(product.c) + (row + i) * product.c_stride + column;
    float const row_scale = product.a.scales[row + i];
    bool const whole = columns == block_columns;
    Element part[block_columns] = {};
    Element* const to = whole ? c : part;
    if (product.accumulate) {
      if (!whole) {
        std::memcpy(part, c, columns * sizeof(Element));
      }
      write_row<true>(sums[i], excesses, row_scale, scales, bias, to);
    } else {
      write_row<false>(sums[i], excesses, row_scale, scales, bias, to);
    }
    if (!whole) {
      std::memcpy(c, part, columns * sizeof(Element));
    }
  }
}

template <class Sums>
void multiply(Product const& given, std::int64_t begin, std::int64_t end) {
  Product const product = given;  // its own copy, which no store can change
  Sums const instructions;
  alignas(64) Block sums;
  for (std::int64_t block = begin; block < end; ++block) {
    std::int64_t const column = block * block_columns;
    std::int8_t const* const panels = product.weights + column * product.k;
    for (std::int64_t row = 0; row < product.m; row += block_rows) {
      std::int64_t const rows = product.m - row < block_rows ? product.m - row : block_rows;
      instructions.compute(product.a.data + row * product.a.stride, product.a.stride, rows, panels, product.k, sums);
      product.c_bfloat16 ? write<Sums::unsigned_rows, std::uint16_t>(product, sums, row, rows, column)
                         : write<Sums::unsigned_rows, float>(product, sums, row, rows, column);
    }
  }
}

template <class Sums>
constexpr Functions functions{Sums::unsigned_rows, quantise, multiply<Sums>};

/// Calls `compute<rows>(first row)` for groups of `max`, then fewer rows.
template <int max, class Compute>
inline void in_groups(std::int64_t rows, Compute const& compute) {
  std::int64_t row = 0;
  for (; row + max <= rows; row += max) {
    compute.template operator()<max>(row);
  }
  if constexpr (max > 1) {
    in_groups<max / 2>(rows - row,
                       [&]<int count>(std::int64_t further) { compute.template operator()<count>(row + further); });
  }
}

}  // namespace
}  // namespace heddle::int8
