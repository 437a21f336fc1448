#include <immintrin.h>

#include "int8_body.hpp"

namespace heddle::int8 {

namespace {

/// The instruction multiplies unsigned by signed numbers.
struct VnniSums {
  static constexpr bool unsigned_rows = true;

  template <int count>
  static void compute_rows(std::int8_t const* a, std::int64_t stride, std::int8_t const* panel, std::int64_t k,
                           std::int32_t (*sums)[block_columns]) {
    __m512i totals[count][2] = {};
    for (std::int64_t i = 0; i < k; i += group, panel += panel_columns * group) {
      __m512i const weights[2]{_mm512_loadu_si512(panel), _mm512_loadu_si512(panel + k * panel_columns)};
#pragma GCC unroll 8
      for (int row = 0; row < count; ++row) {
        int word = 0;
        std::memcpy(&word, a + row * stride + i, sizeof word);
        __m512i const factors = _mm512_set1_epi32(word);
        totals[row][0] = _mm512_dpbusd_epi32(totals[row][0], factors, weights[0]);
        totals[row][1] = _mm512_dpbusd_epi32(totals[row][1], factors, weights[1]);
      }
    }
#pragma GCC unroll 8
    for (int row = 0; row < count; ++row) {
      _mm512_storeu_si512(sums[row], totals[row][0]);
      _mm512_storeu_si512(sums[row] + panel_columns, totals[row][1]);
    }
  }

  static void compute(std::int8_t const* a, std::int64_t stride, std::int64_t rows, std::int8_t const* panels,
                      std::int64_t k, Block& sums) {
    in_groups<8>(rows, [&]<int count>(std::int64_t row) {
      compute_rows<count>(a + row * stride, stride, panels, k, sums + row);
    });
  }
};

}  // namespace

constinit Functions const vnni_functions = functions<VnniSums>;

}  // namespace heddle::int8
