#include "tiles_body.hpp"

namespace heddle::avx512 {

namespace {

/// A word is two bfloat16, of k and k + 1; the lower half is the one of k.
struct BFloat16Words : FloatElements {
  static constexpr std::int64_t elements = 2;

  using FloatElements::load;
  using FloatElements::store;

  static __m256i round(__m512 numbers) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(numbers)); }

  static __m512 load(std::uint16_t const* from, __mmask16 mask) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16));
  }

  static void store(std::uint16_t* to, __m512 numbers) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), round(numbers));
  }
  static void store(std::uint16_t* to, __m512 numbers, __mmask16 mask) {
    _mm256_mask_storeu_epi16(to, mask, round(numbers));
  }

  /// The elements selected by `mask`, starting at (`row`, `column`), rounded if they are float32.
  static __m256i load_bits(Factor const& factor, std::int64_t row, std::int64_t column, __mmask16 mask) {
    std::int64_t const offset = row * factor.stride + column;
    if (factor.float32) {
      return round(_mm512_maskz_loadu_ps(mask, static_cast<float const*>(factor.data) + offset));
    }
    return _mm256_maskz_loadu_epi16(mask, static_cast<std::uint16_t const*>(factor.data) + offset);
  }

  /// The words of k = begin, begin + 2, … of a row that holds all of k; zeros beyond its end.
  static __m512i along(Factor const& factor, std::int64_t row, std::int64_t begin) {
    std::int64_t const left = factor.k - begin;
    __m256i const low = load_bits(factor, row, begin, first(left));
    __m256i const high = load_bits(factor, row, begin + lanes, first(left - lanes));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }

  /// The words of k of columns column, column + 1, …; the last word's upper half is zero where k is odd.
  static __m512i across(Factor const& factor, std::int64_t column, std::int64_t k, __mmask16 mask) {
    __m512i const low = _mm512_cvtepu16_epi32(load_bits(factor, k, column, mask));
    if (k + 1 == factor.k) {
      return low;
    }
    return _mm512_or_si512(low, _mm512_slli_epi32(_mm512_cvtepu16_epi32(load_bits(factor, k + 1, column, mask)), 16));
  }

  static __m512 multiply_add(__m512 sums, __m512i left, __m512i right) {
    return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right));
  }
};

}  // namespace

constinit Tiles const bfloat16_tiles = tiles<BFloat16Words>;

}  // namespace heddle::avx512
