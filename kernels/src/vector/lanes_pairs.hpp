#pragma once

#if defined(__AVX512BF16__) || defined(__AVX512DQ__)
#include <immintrin.h>
#endif

#include <heddle/core/base/dtype.hpp>

#include "lanes.hpp"

/// Vectors of 32 bfloat16 as two vectors of float32, the elements of even and of odd index: no element changes its
/// place when it is widened or rounded, which would be expensive for 16 in their order.
namespace heddle::lanes {

constexpr std::int64_t pair_width = 2 * width;

struct Pair {
  Floats even, odd;
};

inline Words load_words(void const* from) {
  Words result;
  std::memcpy(&result, from, sizeof(result));
  return result;
}

inline void store_words(Words words, void* to) {
  std::memcpy(to, &words, sizeof(words));
}

/// The bfloat16 that 32 bits each hold, the one of even index below.
inline Pair pair_of(Words words) {
  return {std::bit_cast<Floats>(words << 16), std::bit_cast<Floats>(words & 0xffff0000U)};
}
inline Pair load_pair(BFloat16 const* from) {
  return pair_of(load_words(from));
}

/// Each element as the nearest bfloat16, ties to even, by the machine's own instruction if it has one, which treats
/// denormal numbers as zero. NaN stays NaN.
inline Words rounded(Pair value) {
#ifdef __AVX512BF16__
  constexpr Words first_places = {0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007,
                                  0x180008, 0x190009, 0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f};
  __m512bh const halves =
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(value.odd), reinterpret_cast<__m512>(value.even));
  return reinterpret_cast<Words>(_mm512_maskz_permutexvar_epi16(0xffffffffU, reinterpret_cast<__m512i>(first_places),
                                                                reinterpret_cast<__m512i>(halves)));
#else
  auto const nearest = [](Floats floats) {
    Words const word = std::bit_cast<Words>(floats);
    return floats == floats ? word + 0x7fffU + ((word >> 16) & 1U) : word | 0x400000U;
  };
  return (nearest(value.even) >> 16) | (nearest(value.odd) & 0xffff0000U);
#endif
}

inline void store_pair(Pair value, BFloat16* to) {
  store_words(rounded(value), to);
}

/// 2^x for x that are at most 0 except for rounding errors, with a relative error of 3 millionths, a thousandth of the
/// rounding to bfloat16; below -126 it is 2^-126 or less. NaN stays NaN.
inline Floats rough_exp2_of_negative(Floats x) {
#ifdef __AVX512DQ__
  constexpr int above_floor = 0x9;
  Floats const rest =
      reinterpret_cast<Floats>(_mm512_maskz_reduce_ps(0xffff, reinterpret_cast<__m512>(x), above_floor));
#else
  Floats const bounded = x < -126.0F ? all(-126.0F) : x;
  Integers const power = __builtin_convertvector(bounded - 1.0F, Integers);  // truncated towards 0: at most 1 below x
  Floats const rest = bounded - __builtin_convertvector(power, Floats);
#endif
  Floats const series = rough_exp2_series(rest);
#ifdef __AVX512DQ__
  return reinterpret_cast<Floats>(
      _mm512_maskz_scalef_ps(0xffff, reinterpret_cast<__m512>(series), reinterpret_cast<__m512>(x)));
#else
  return std::bit_cast<Floats>(std::bit_cast<Integers>(series) + (power << 23));
#endif
}

/// sums + the products of the words' lower halves + the products of their upper halves, both bfloat16. The machine's
/// own instruction treats denormal numbers as zero.
inline Floats add_products_of_pairs(Floats sums, Words a, Words b) {
#ifdef __AVX512BF16__
  return reinterpret_cast<Floats>(
      _mm512_dpbf16_ps(reinterpret_cast<__m512>(sums), reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)));
#else
  Pair const left = pair_of(a);
  Pair const right = pair_of(b);
  return sums + left.even * right.even + left.odd * right.odd;
#endif
}

/// Loads float32 in memory order.
inline Pair load_pair(float const* from) {
  Floats const low = load(from);
  Floats const high = load(from + width);
  return {__builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
          __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)};
}

/// The first and the last 16 elements of a pair, in memory order.
struct InOrder {
  Floats low, high;
};
inline InOrder in_order(Pair value) {
  return {__builtin_shufflevector(value.even, value.odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
          __builtin_shufflevector(value.even, value.odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)};
}

/// to += value, float32 in memory order.
inline void add_pair(Pair value, float* to) {
  auto const [low, high] = in_order(value);
  store(load(to) + low, to);
  store(load(to + width) + high, to + width);
}

/// A block of 32 consecutive elements in the vectors that take the fewest instructions: bfloat16 of even and of odd
/// index, the first and the last 16 float32.
inline Pair load_block(BFloat16 const* from) {
  return load_pair(from);
}
inline Pair load_block(float const* from) {
  return {load(from), load(from + width)};
}
inline void store_block(Pair value, BFloat16* to) {
  store_pair(value, to);
}
inline void store_block(Pair value, float* to) {
  store(value.even, to);
  store(value.odd, to + width);
}

}  // namespace heddle::lanes
