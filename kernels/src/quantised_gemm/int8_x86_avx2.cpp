#include <immintrin.h>

#include "int8_body.hpp"

namespace heddle::int8 {

namespace {

/// Products of |a| by a's sign times the weight: neither exceeds 127, so that two of them fit 16 bits.
struct Avx2Sums {
  static constexpr bool unsigned_rows = false;
  static constexpr std::int64_t lanes = 8;
  static constexpr std::int64_t vectors = 2;  ///< of a panel

  template <int count>
  static void compute_rows(std::int8_t const* a, std::int64_t stride, std::int8_t const* panel, std::int64_t k,
                           std::int32_t (*sums)[block_columns]) {
    __m256i totals[count][vectors] = {};
    __m256i const ones = _mm256_set1_epi16(1);
    for (std::int64_t i = 0; i < k; i += group, panel += panel_columns * group) {
      for (int row = 0; row < count; ++row) {
        int word = 0;
        std::memcpy(&word, a + row * stride + i, sizeof word);
        __m256i const factors = _mm256_set1_epi32(word);
        __m256i const absolute = _mm256_abs_epi8(factors);
        for (int part = 0; part < vectors; ++part) {
          __m256i const weights = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(panel) + part);
          __m256i const pairs = _mm256_maddubs_epi16(absolute, _mm256_sign_epi8(weights, factors));
          totals[row][part] = _mm256_add_epi32(totals[row][part], _mm256_madd_epi16(pairs, ones));
        }
      }
    }
    for (int row = 0; row < count; ++row) {
      for (int part = 0; part < vectors; ++part) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[row] + part * lanes), totals[row][part]);
      }
    }
  }

  static void compute(std::int8_t const* a, std::int64_t stride, std::int64_t rows, std::int8_t const* panels,
                      std::int64_t k, Block& sums) {
    for (std::int64_t column = 0; column < block_columns; column += panel_columns) {
      in_groups<4>(rows, [&]<int count>(std::int64_t row) {
        compute_rows<count>(a + row * stride, stride, panels + column * k, k,
                            reinterpret_cast<std::int32_t(*)[block_columns]>(sums[row] + column));
      });
    }
  }
};

}  // namespace

constinit Functions const avx2_functions = functions<Avx2Sums>;

}  // namespace heddle::int8
