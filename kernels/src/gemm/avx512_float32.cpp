#include "avx512_tiles_body.hpp"

namespace heddle::avx512 {

namespace {

/// A word is one float32.
struct Float32Words : FloatElements {
  static constexpr std::int64_t elements = 1;

  static float const* at(Factor const& factor, std::int64_t row, std::int64_t column) {
    return static_cast<float const*>(factor.data) + row * factor.stride + column;
  }

  /// The words begin, begin + 1, … of a row that holds all of k; zeros beyond its end.
  static __m512i along(Factor const& factor, std::int64_t row, std::int64_t begin) {
    return _mm512_castps_si512(_mm512_maskz_loadu_ps(first(factor.k - begin), at(factor, row, begin)));
  }

  /// The word k of columns column, column + 1, ….
  static __m512i across(Factor const& factor, std::int64_t column, std::int64_t k, __mmask16 mask) {
    return _mm512_castps_si512(_mm512_maskz_loadu_ps(mask, at(factor, k, column)));
  }

  static __m512 multiply_add(__m512 sums, __m512i left, __m512i right) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(left), _mm512_castsi512_ps(right), sums);
  }
};

}  // namespace

constinit Tiles const float32_tiles = tiles<Float32Words>;

}  // namespace heddle::avx512
