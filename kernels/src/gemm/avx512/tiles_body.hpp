#pragma once

#include <immintrin.h>

#include <cstring>
#include <utility>

#include "tiles.hpp"

/// Code that float32 and bfloat16 share. `Words` defines how words are loaded and multiplied. Everything is in an
/// unnamed namespace: the linker must not use code for AVX-512 in other files.
namespace heddle::avx512 {
namespace {

constexpr int lanes = 16;

/// The first `count` lanes; all if there are more.
inline __mmask16 first(std::int64_t count) {
  return count >= lanes ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1U << (count > 0 ? count : 0)) - 1U);
}

/// Elements of c in float32.
struct FloatElements {
  static __m512 load(float const* from, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, from); }
  static void store(float* to, __m512 numbers) { _mm512_storeu_ps(to, numbers); }
  static void store(float* to, __m512 numbers, __mmask16 mask) { _mm512_mask_storeu_ps(to, mask, numbers); }
};

/// 16 rows of 16 words, transposed.
inline void transpose(__m512i (&rows)[lanes]) {
  __m512i t[lanes];
#pragma GCC unroll 8
  for (int i = 0; i < lanes; i += 2) {
    t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < lanes; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    __m512i const low = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
    __m512i const low_odd = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
    __m512i const high = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
    __m512i const high_odd = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
    t[i] = _mm512_shuffle_i32x4(low, high, 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
    t[i + 8] = _mm512_shuffle_i32x4(low, high, 0xdd);
    t[i + 12] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) {
    rows[i] = t[i];
  }
}

/// Rows of words as they are, left_row_stride apart.
template <class Words>
void copy_rows(Factor const& a, std::uint32_t* packed) {
  for (std::int64_t row = 0; row < a.extent; ++row) {
    for (std::int64_t begin = 0; begin < a.k; begin += lanes * Words::elements) {
      _mm512_storeu_si512(packed + row * left_row_stride + begin / Words::elements, Words::along(a, row, begin));
    }
  }
}

/// Panels of `width` rows or columns, `stride` words per step; each stored row of the factor has one k.
template <class Words, std::int64_t stride>
void pack_across(Factor const& given, int width, std::uint32_t* packed) {
  Factor const factor = given;  // its own copy, which no store can change
  std::int64_t const steps = (factor.k + Words::elements - 1) / Words::elements;
  std::int64_t const panel_stride = (steps + panel_gap) * stride;
  std::int64_t const whole = factor.extent / width * width;
  __mmask16 const masks[2]{first(width), first(width - lanes)};
  for (std::int64_t step = 0; step < steps; ++step) {
    std::uint32_t* to = packed + step * stride;
    std::int64_t const k = step * Words::elements;
    for (std::int64_t column = 0; column < whole; column += width, to += panel_stride) {
#pragma GCC unroll 2
      for (std::int64_t part = 0; part < stride / lanes; ++part) {
        _mm512_storeu_si512(to + part * lanes, Words::across(factor, column + part * lanes, k, masks[part]));
      }
    }
    for (std::int64_t part = 0; part < stride && whole < factor.extent; part += lanes) {
      __mmask16 const mask = first(factor.extent - whole - part);
      _mm512_storeu_si512(to + part, Words::across(factor, whole + part, k, mask));
    }
  }
}

/// Panels of tile_columns columns, step by step; each stored row of the factor has all of k.
template <class Words>
void pack_along(Factor const& given, std::uint32_t* packed) {
  Factor const factor = given;
  std::int64_t const steps = (factor.k + Words::elements - 1) / Words::elements;
  std::int64_t const panel_stride = (steps + panel_gap) * tile_columns;
  for (std::int64_t column = 0; column < factor.extent; column += tile_columns, packed += panel_stride) {
    for (int part = 0; part < tile_columns; part += lanes) {
      for (std::int64_t step = 0; step < steps; step += lanes) {
        __m512i block[lanes];
        for (int i = 0; i < lanes; ++i) {
          std::int64_t const row = column + part + i;
          block[i] = row < factor.extent ? Words::along(factor, row, step * Words::elements) : _mm512_setzero_si512();
        }
        transpose(block);
        for (int i = 0; i < lanes && step + i < steps; ++i) {
          _mm512_storeu_si512(packed + (step + i) * tile_columns + part, block[i]);
        }
      }
    }
  }
}

template <class Words>
void pack_left(Factor const& a, int panel_rows, std::uint32_t* packed) {
  a.k_contiguous ? copy_rows<Words>(a, packed) : pack_across<Words, left_step_stride>(a, panel_rows, packed);
}

template <class Words>
void pack_right(Factor const& b, std::uint32_t* packed) {
  b.k_contiguous ? pack_along<Words>(b, packed) : pack_across<Words, tile_columns>(b, tile_columns, packed);
}

/// Calls `work(row, part)` for each of a tile's vectors, unrolled so that they stay in registers.
template <int rows, class Work>
inline __attribute__((always_inline)) void for_each_vector(Work&& work) {
#pragma GCC unroll 14
  for (int row = 0; row < rows; ++row) {
    work(row, 0);
    work(row, 1);
  }
}

/// data = sums, or data += sums, where Element is float or, with matching load and store, bfloat16.
template <class Words, int rows, class Element>
inline __attribute__((always_inline)) void store_as(Destination const& to, __mmask16 const (&masks)[2],
                                                    __m512 (&sums)[rows][2]) {
  auto* const data = static_cast<Element*>(to.data);
  std::int64_t const stride = to.stride;
  if (to.accumulate) {
    for_each_vector<rows>([&](int row, int part) __attribute__((always_inline)) {
      sums[row][part] = _mm512_add_ps(Words::load(data + row * stride + part * lanes, masks[part]), sums[row][part]);
    });
  }
  if (masks[1] == first(lanes)) {
    for_each_vector<rows>([&](int row, int part) __attribute__((always_inline)) {
      Words::store(data + row * stride + part * lanes, sums[row][part]);
    });
  } else {
    for_each_vector<rows>([&](int row, int part) __attribute__((always_inline)) {
      Words::store(data + row * stride + part * lanes, sums[row][part], masks[part]);
    });
  }
}

template <class Words, int rows>
inline __attribute__((always_inline)) void store(Tile const& tile, __m512 (&sums)[rows][2]) {
  Destination const& to = tile.destination;
  __mmask16 const masks[2]{first(tile.columns), first(tile.columns - lanes)};
  if (to.bias != nullptr) {
    __m512 const bias[2]{_mm512_maskz_loadu_ps(masks[0], to.bias), _mm512_maskz_loadu_ps(masks[1], to.bias + lanes)};
    for_each_vector<rows>([&](int row, int part) __attribute__((always_inline)) {
      sums[row][part] = _mm512_add_ps(sums[row][part], bias[part]);
    });
  }
  if (to.partial != nullptr) {
    for_each_vector<rows>([&](int row, int part) __attribute__((always_inline)) {
      float const* const partial = to.partial + row * to.partial_stride + part * lanes;
      sums[row][part] = _mm512_add_ps(sums[row][part], _mm512_maskz_loadu_ps(masks[part], partial));
    });
  }
  if constexpr (Words::elements == 2) {
    if (to.bfloat16) {
      store_as<Words, rows, std::uint16_t>(to, masks, sums);
      return;
    }
  }
  store_as<Words, rows, float>(to, masks, sums);
}

/// Prefetches the rows of c that a tile will write while it multiplies.
template <int rows>
inline void prefetch(Tile const& tile) {
  Destination const& to = tile.destination;
  std::int64_t const size = to.bfloat16 ? 2 : 4;
  char const* row = static_cast<char const*>(to.data);
#pragma GCC unroll 14
  for (int i = 0; i < rows; ++i, row += to.stride * size) {
    _mm_prefetch(row, _MM_HINT_T0);
    _mm_prefetch(row + (tile.columns - 1) * size, _MM_HINT_T0);
  }
}

struct LeftPanel {
  int const* words;

  explicit LeftPanel(Tile const& tile) : words(static_cast<int const*>(tile.left)) {}
  __m512i word(int row) const { return _mm512_set1_epi32(words[row]); }
  void advance() { words += left_step_stride; }
};

/// Rows of a. Three pointers and two strides, which fit the registers, address all of them.
struct LeftRows {
  char const* rows[3];
  std::int64_t stride;
  std::int64_t three_strides;

  explicit LeftRows(Tile const& tile) : stride(tile.left_row_bytes), three_strides(3 * tile.left_row_bytes) {
    rows[0] = static_cast<char const*>(tile.left);
    rows[1] = rows[0] + 5 * stride;
    rows[2] = rows[1] + 5 * stride;
  }
  __m512i word(int row) const {
    char const* const base = rows[row / 5];
    int const further = row % 5;
    int word = 0;
    std::memcpy(&word, base + (further == 3 ? three_strides : further * stride), sizeof(word));
    return _mm512_set1_epi32(word);
  }
  void advance() {
    for (char const*& row : rows) {
      row += 4;
    }
  }
};

template <class Words, int rows, class Left>
void multiply(Tile const& tile) {
  prefetch<rows>(tile);
  __m512 sums[rows][2];
  for_each_vector<rows>([&](int row, int part)
                            __attribute__((always_inline)) { sums[row][part] = _mm512_setzero_ps(); });
  Left left(tile);
  std::uint32_t const* right = tile.right;
  char const* ahead = static_cast<char const*>(tile.ahead);
  for (std::int64_t step = 0; step < tile.steps; ++step) {
    _mm_prefetch(ahead, _MM_HINT_T1);
    __m512i const columns[2]{_mm512_loadu_si512(right), _mm512_loadu_si512(right + lanes)};
    for_each_vector<rows>([&](int row, int part) __attribute__((always_inline)) {
      sums[row][part] = Words::multiply_add(sums[row][part], left.word(row), columns[part]);
    });
    left.advance();
    right += tile_columns;
    ahead += tile.ahead_bytes;
  }
  store<Words, rows>(tile, sums);
}

using Multiply = void (*)(Tile const&);

/// The function multiply() for 1 to tile_rows rows.
template <class Words, class Left, std::size_t... indices>
Multiply for_rows(int rows, std::index_sequence<indices...>) {
  static constexpr Multiply table[]{multiply<Words, indices + 1, Left>...};
  return table[rows - 1];
}

template <class Words>
void multiply_tile(Tile const& tile) {
  constexpr std::make_index_sequence<tile_rows> all;
  (tile.left_row_bytes != 0 ? for_rows<Words, LeftRows>(tile.rows, all)
                            : for_rows<Words, LeftPanel>(tile.rows, all))(tile);
}

template <class Words>
constexpr Tiles tiles{Words::elements, pack_left<Words>, pack_right<Words>, multiply_tile<Words>};

}  // namespace
}  // namespace heddle::avx512
