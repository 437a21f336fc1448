#pragma once

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include <bit>
#include <cstdint>
#include <cstring>
#include <heddle/core/base/exponential.hpp>
#include <utility>

/// Vectors of 16 float32, in GCC's and Clang's vector types: for host code that must use the registers fully.
/// Compilers split them where the machine's vectors are shorter.
namespace heddle::lanes {

constexpr std::int64_t width = 16;

using Floats = float __attribute__((vector_size(64)));
using Integers = std::int32_t __attribute__((vector_size(64)));
using Words = std::uint32_t __attribute__((vector_size(64)));

inline Floats load(float const* from) {
  Floats result;
  std::memcpy(&result, from, sizeof(result));
  return result;
}
inline void store(Floats value, float* to) {
  std::memcpy(to, &value, sizeof(value));
}

/// The first `count` < width elements, zero beyond them.
[[gnu::noinline]] inline Floats load_some(float const* from, std::int64_t count) {
  float part[width] = {};
  std::memcpy(part, from, static_cast<std::size_t>(count) * sizeof(float));
  return load(part);
}
/// The first `count` < width elements.
[[gnu::noinline]] inline void store_some(Floats const& value, float* to, std::int64_t count) {
  std::memcpy(to, &value, static_cast<std::size_t>(count) * sizeof(float));
}

/// The first `count` elements, zero beyond them.
inline Floats load(float const* from, std::int64_t count) {
  return count >= width ? load(from) : load_some(from, count);
}
/// The first `count` elements.
inline void store(Floats const& value, float* to, std::int64_t count) {
  count >= width ? store(value, to) : store_some(value, to, count);
}

inline Floats all(float value) {
  return Floats{} + value;
}

inline Floats maximum(Floats a, Floats b) {
  return a > b ? a : b;
}

/// Whether an element is above the bound.
inline bool any_above(Floats value, float bound) {
#ifdef __AVX512F__
  return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(value), reinterpret_cast<__m512>(all(bound)), _CMP_GT_OQ) != 0;
#else
  bool above = false;
  for (int i = 0; i < width; ++i) {
    above = above || value[i] > bound;
  }
  return above;
#endif
}

inline Integers indices() {
  return Integers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
}

inline float sum(Floats value) {
  float result = 0;
  for (int i = 0; i < width; ++i) {
    result += value[i];
  }
  return result;
}

/// 2^x for x that are at most 0 except for rounding errors, to about 2 units in the last place; 0 below -126. NaN
/// stays NaN.
inline Floats exp2_of_negative(Floats x) {
#ifdef __AVX512DQ__
  auto const all_of_it = static_cast<__mmask16>(-1);  // the forms without a mask read registers that GCC 12 warns of
  __m512 const number = reinterpret_cast<__m512>(x);
  __m512 const rest = _mm512_maskz_reduce_ps(all_of_it, number, 0);  // the distance from the nearest integer
  __mmask16 const normal = _mm512_cmp_ps_mask(number, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ);
  Floats const series = exp2_series(reinterpret_cast<Floats>(rest));
  return reinterpret_cast<Floats>(
      _mm512_maskz_scalef_ps(normal, reinterpret_cast<__m512>(series), _mm512_sub_ps(number, rest)));
#else
  Floats const bounded = x < -126.0F ? all(-126.0F) : x;
  Integers const power = __builtin_convertvector(bounded - 0.5F, Integers);  // truncated towards 0: the nearest integer
  Floats const series = exp2_series(bounded - __builtin_convertvector(power, Floats));
  Integers const scaled = std::bit_cast<Integers>(series) + (power << 23);
  return x < -126.0F ? Floats{} : std::bit_cast<Floats>(scaled);
#endif
}

/// The natural logarithm for normal x > 0, to about 2 units in the last place (the series of Moshier's Cephes).
inline Floats log_of_positive(Floats x) {
  Integers const bits = std::bit_cast<Integers>(x);
  Integers const power = (bits - std::bit_cast<std::int32_t>(0.707106781F)) >> 23;
  Floats const rest = std::bit_cast<Floats>(bits - (power << 23)) - 1.0F;
  Floats series = 7.0376836292e-2F * rest - 1.1514610310e-1F;
  series = series * rest + 1.1676998740e-1F;
  series = series * rest - 1.2420140846e-1F;
  series = series * rest + 1.4249322787e-1F;
  series = series * rest - 1.6668057665e-1F;
  series = series * rest + 2.0000714765e-1F;
  series = series * rest - 2.4999993993e-1F;
  series = series * rest + 3.3333331174e-1F;
  Floats const square = rest * rest;
  return 0.693147181F * __builtin_convertvector(power, Floats) + (rest - 0.5F * square + series * rest * square);
}

/// Where bit `step` of i and j differs, swaps element j of vector i with element j ^ step of vector i ^ step.
template <std::size_t step, std::size_t... i>
inline void exchange(Floats (&block)[width], std::index_sequence<i...>) {
  for (std::size_t row = 0; row < width; ++row) {
    if ((row & step) == 0) {
      Floats const a = block[row];
      Floats const b = block[row + step];
      block[row] = __builtin_shufflevector(a, b, ((i & step) == 0 ? i : i + width - step)...);
      block[row + step] = __builtin_shufflevector(a, b, ((i & step) == 0 ? i + step : i + width)...);
    }
  }
}

/// Swaps element j of vector i with element i of vector j.
inline void transpose(Floats (&block)[width]) {
  constexpr std::make_index_sequence<width> all;
  exchange<8>(block, all);
  exchange<4>(block, all);
  exchange<2>(block, all);
  exchange<1>(block, all);
}

/// Adds the elements in which the bit `step` of the index differs: of vector a where the bit is 0, and of b.
template <std::size_t step, std::size_t... i>
inline Floats add_pairs(Floats a, Floats b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, ((i & step) == 0 ? i : i + width - step)...) +
         __builtin_shufflevector(a, b, ((i & step) == 0 ? i + step : i + width)...);
}
template <std::size_t step>
inline void add_pairs(Floats (&block)[width]) {
  for (std::size_t i = 0; i < step; ++i) {
    block[i] = add_pairs<step>(block[i], block[i + step], std::make_index_sequence<width>());
  }
}

/// Element i is the sum of the elements of vector i, which are overwritten.
inline Floats sums(Floats (&block)[width]) {
  add_pairs<8>(block);
  add_pairs<4>(block);
  add_pairs<2>(block);
  add_pairs<1>(block);
  return block[0];
}

template <std::size_t step, std::size_t... i>
inline Floats larger_of_pairs(Floats value, std::index_sequence<i...>) {
  return maximum(value, __builtin_shufflevector(value, value, (i ^ step)...));
}
/// The largest element, if none is NaN.
inline float largest(Floats value) {
  constexpr std::make_index_sequence<width> all;
  value = larger_of_pairs<8>(value, all);
  value = larger_of_pairs<4>(value, all);
  value = larger_of_pairs<2>(value, all);
  return larger_of_pairs<1>(value, all)[0];
}

}  // namespace heddle::lanes
