#include "tiles_body.hpp"

namespace heddle::avx512 {

namespace {

/// A word is one float32.
struct Float32Words : FloatElements {
  static constexpr std::int64_t elements = 1;

  /// The elements selected by `mask`, starting at (`row`, `column`).
  static __m512i load_bits(Factor const& factor, std::int64_t row, std::int64_t column, __mmask16 mask) {
    std::int64_t const offset = row * factor.stride + column;
    if (factor.float32) {
      return _mm512_castps_si512(_mm512_maskz_loadu_ps(mask, static_cast<float const*>(factor.data) + offset));
    }
    // bfloat16 is the upper half of float32.
    auto const* const halves = static_cast<std::uint16_t const*>(factor.data) + offset;
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, halves)), 16);
  }

  /// The words begin, begin + 1, … of a row that holds all of k; zeros beyond its end.
  static __m512i along(Factor const& factor, std::int64_t row, std::int64_t begin) {
    return load_bits(factor, row, begin, first(factor.k - begin));
  }

  /// The word k of columns column, column + 1, ….
  static __m512i across(Factor const& factor, std::int64_t column, std::int64_t k, __mmask16 mask) {
    return load_bits(factor, k, column, mask);
  }

  static __m512 multiply_add(__m512 sums, __m512i left, __m512i right) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(left), _mm512_castsi512_ps(right), sums);
  }
};

}  // namespace

constinit Tiles const float32_tiles = tiles<Float32Words>;

}  // namespace heddle::avx512
