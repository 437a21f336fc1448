#include "avx512_amx_tiles.hpp"

#include <immintrin.h>

namespace heddle::amx {

namespace {

/// The rows of a whose products with a panel follow each other: their part of a stays in the second-level cache.
constexpr std::int64_t block_rows = 320;

struct alignas(64) Configuration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Rows of a that a tile reads.
struct Rows {
  std::uint16_t const* data;
  std::int64_t stride;
};

/// Lines of memory that are read ahead into the second-level cache during a product, `at_step` of them at each step.
struct Ahead {
  char const* next;
  std::int64_t at_step;
};

/// sums [two tiles of rows, panel] of float32 = the products of these rows with a panel.
template <bool second>
void multiply_tiles(Rows a, Rows below, std::uint16_t const* packed, std::int64_t steps, Ahead ahead, float* sums) {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (second) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t s = 0; s < steps; ++s) {
    for (std::int64_t line = 0; line < ahead.at_step; ++line, ahead.next += 64) {
      _mm_prefetch(ahead.next, _MM_HINT_T1);
    }
    _tile_loadd(6, packed, 64);
    _tile_loadd(7, packed + panel * step / 2, 64);
    _tile_loadd(4, a.data + s * step, a.stride * 2);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (second) {
      _tile_loadd(5, below.data + s * step, below.stride * 2);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    packed += panel * step;
  }
  constexpr std::int64_t row_bytes = panel * 4;
  _tile_stored(0, sums, row_bytes);
  _tile_stored(1, sums + tile_rows, row_bytes);
  if constexpr (second) {
    _tile_stored(2, sums + tile_rows * panel, row_bytes);
    _tile_stored(3, sums + tile_rows * panel + tile_rows, row_bytes);
  }
}

/// Adds the bias to `rows` rows of sums and writes them to c, whose column `column` is the first.
void write(Product const& product, float const* sums, std::int64_t row, std::int64_t rows, std::int64_t column) {
  for (std::int64_t begin = column; begin < column + panel && begin < product.n; begin += 16) {
    std::int64_t const left = product.n - begin;
    auto const mask = static_cast<__mmask16>(left < 16 ? (1U << left) - 1U : 0xffffU);
    __m512 const bias =
        product.bias != nullptr ? _mm512_maskz_loadu_ps(mask, product.bias + begin) : _mm512_setzero_ps();
    float const* from = sums + begin - column;
    std::int64_t const stride = product.c_stride;
    if (product.c_is_float32) {
      float* to = static_cast<float*>(product.c) + row * stride + begin;
      for (std::int64_t i = 0; i < rows; ++i, from += panel, to += stride) {
        _mm512_mask_storeu_ps(to, mask, _mm512_add_ps(_mm512_loadu_ps(from), bias));
      }
    } else {
      std::uint16_t* to = static_cast<std::uint16_t*>(product.c) + row * stride + begin;
      for (std::int64_t i = 0; i < rows; ++i, from += panel, to += stride) {
        __m512 const value = _mm512_add_ps(_mm512_loadu_ps(from), bias);
        _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
      }
    }
  }
}

/// 32 elements of a row, rounded: the words of two.
__m512i words_at(Weight const& weight, std::int64_t row, std::int64_t k) {
  std::int64_t const place = row * weight.stride + k;
  if (!weight.float32) {
    return _mm512_loadu_si512(static_cast<std::uint16_t const*>(weight.data) + place);
  }
  float const* const from = static_cast<float const*>(weight.data) + place;
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from)));
}

}  // namespace

void pack(Weight const& weight, std::uint16_t* packed) {
  auto* words = reinterpret_cast<std::uint32_t*>(packed);
  for (std::int64_t first = 0; first < weight.n; first += panel) {
    for (std::int64_t k = 0; k < weight.k; k += step) {
      for (std::int64_t column = 0; column < panel; ++column, ++words) {
        alignas(64) std::uint32_t of_row[16] = {};
        if (first + column < weight.n) {
          _mm512_store_si512(of_row, words_at(weight, first + column, k));
        }
        for (std::int64_t i = 0; i < 16; ++i) {
          words[i * 16] = of_row[i];
        }
        words += column % 16 == 15 ? 15 * 16 : 0;
      }
    }
  }
}

void multiply(Product const& product) {
  Configuration const configuration;
  _tile_loadconfig(&configuration);
  std::int64_t const whole_rows = product.m / tile_rows * tile_rows;
  for (std::int64_t row = whole_rows; row < product.m; ++row) {
    for (std::int64_t k = 0; k < product.k; k += step) {
      _mm512_storeu_si512(product.spare + (row - whole_rows) * product.k + k,
                          _mm512_loadu_si512(product.a + row * product.a_stride + k));
    }
  }
  auto const rows_at = [&](std::int64_t row) {
    return row + tile_rows <= product.m ? Rows{product.a + row * product.a_stride, product.a_stride}
                                        : Rows{product.spare, product.k};
  };
  alignas(64) float sums[2 * tile_rows * panel];
  std::int64_t const steps = product.k / step;
  for (std::int64_t begin = 0; begin < product.m; begin += block_rows) {
    std::int64_t const end = begin + block_rows < product.m ? begin + block_rows : product.m;
    for (std::int64_t column = 0; column < product.n; column += panel) {
      std::uint16_t const* const packed = product.packed + column * product.k;
      // Each pair of tiles reads its share of the next panel ahead.
      std::int64_t const pairs = (end - begin + 2 * tile_rows - 1) / (2 * tile_rows);
      Ahead ahead{reinterpret_cast<char const*>(packed + panel * product.k), (panel + pairs - 1) / pairs};
      for (std::int64_t row = begin; row < end; row += 2 * tile_rows, ahead.next += 64 * ahead.at_step * steps) {
        std::int64_t const rows = end - row < 2 * tile_rows ? end - row : 2 * tile_rows;
        if (rows > tile_rows) {
          multiply_tiles<true>(rows_at(row), rows_at(row + tile_rows), packed, steps, ahead, sums);
        } else {
          multiply_tiles<false>(rows_at(row), {}, packed, steps, ahead, sums);
        }
        write(product, sums, row, rows, column);
      }
    }
  }
  _tile_release();
}

}  // namespace heddle::amx
