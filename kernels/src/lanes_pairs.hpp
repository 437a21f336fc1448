#pragma once

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#include "lanes.hpp"

/// 32 bfloat16 side by side as two vectors of float32, those of even and those of odd index: so no element changes its
/// place when it is widened or rounded, which is what costs when 16 are taken in their order.
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

inline Pair load_pair(BFloat16 const* from) {
  Words const words = load_words(from);
  return {std::bit_cast<Floats>(words << 16), std::bit_cast<Floats>(words & 0xffff0000U)};
}

/// Each element as the nearest bfloat16, ties to the even one. The NaN of arithmetic are quiet and stay NaN.
inline Pair rounded(Pair value) {
  auto const nearest = [](Floats floats) {
    Words const word = std::bit_cast<Words>(floats);
    return std::bit_cast<Floats>((word + 0x7fffU + ((word >> 16) & 1U)) & 0xffff0000U);
  };
  return {nearest(value.even), nearest(value.odd)};
}

/// Stores what rounded() has made.
inline void store_rounded(Pair value, BFloat16* to) {
  Words const words = (std::bit_cast<Words>(value.even) >> 16) | std::bit_cast<Words>(value.odd);
  std::memcpy(static_cast<void*>(to), &words, sizeof(words));
}

/// Rounds and stores; by the machine's own instruction where it has one, which takes denormal numbers for zero.
inline void store_pair(Pair value, BFloat16* to) {
#ifdef __AVX512BF16__
  constexpr Words first_places = {0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007,
                                  0x180008, 0x190009, 0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f};
  __m512bh const halves =
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(value.odd), reinterpret_cast<__m512>(value.even));
  __m512i const ordered = _mm512_maskz_permutexvar_epi16(0xffffffffU, reinterpret_cast<__m512i>(first_places),
                                                         reinterpret_cast<__m512i>(halves));
  std::memcpy(static_cast<void*>(to), &ordered, sizeof(ordered));
#else
  store_rounded(rounded(value), to);
#endif
}

/// From float32 in their order.
inline Pair load_pair(float const* from) {
  Floats const low = load(from);
  Floats const high = load(from + width);
  return {__builtin_shuffle(low, high, 2 * indices()), __builtin_shuffle(low, high, 2 * indices() + 1)};
}

/// to += value, float32 in their order.
inline void add_pair(Pair value, float* to) {
  Integers const half = indices() / 2;
  Integers const odd = (indices() % 2) * 16;
  store(load(to) + __builtin_shuffle(value.even, value.odd, half + odd), to);
  store(load(to + width) + __builtin_shuffle(value.even, value.odd, half + odd + 8), to + width);
}

}  // namespace heddle::lanes
