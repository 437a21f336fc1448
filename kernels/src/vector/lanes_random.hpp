#pragma once

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include <heddle/core/base/random.hpp>

#include "lanes_pairs.hpp"

/// Philox for eight counters at once.
namespace heddle::lanes {

using Longs = std::uint64_t __attribute__((vector_size(64)));
/// The number of elements that eight counters decide, eight each.
constexpr std::int64_t batch_elements = 64;

/// Multiplies the lower halves by a 32-bit number. Compilers do not find this instruction in the formula.
inline Longs product_of_lower_halves(Longs a, std::uint32_t b) {
#ifdef __AVX512F__
  // The form with a mask: the one without reads a register that GCC 12 warns of.
  return reinterpret_cast<Longs>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), _mm512_set1_epi64(static_cast<long long>(b))));
#else
  return (a & 0xffffffffU) * b;
#endif
}

/// out = the words of the counters {sample, position, group + i, step} for 0 ≤ i < 8 * batches, four of each, in the
/// order of the elements that their halves decide.
template <int batches>
inline void random_words(std::uint64_t key, Philox::Counter const& counter, std::uint32_t* out) {
  Longs words[batches][4];
  for (int batch = 0; batch < batches; ++batch) {
    for (int word = 0; word < 4; ++word) {
      words[batch][word] = Longs{} + counter[static_cast<std::size_t>(word)];
    }
    words[batch][2] += Longs{0, 1, 2, 3, 4, 5, 6, 7} + static_cast<std::uint64_t>(8 * batch);
  }
  auto key_0 = static_cast<std::uint32_t>(key);
  auto key_1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < Philox::dropout_rounds; ++round) {
    for (Longs(&of_batch)[4] : words) {
      Longs const product_0 = product_of_lower_halves(of_batch[0], Philox::multiplier_0);
      Longs const product_1 = product_of_lower_halves(of_batch[2], Philox::multiplier_1);
      of_batch[0] = (product_1 >> 32) ^ of_batch[1] ^ (Longs{} + key_0);
      of_batch[2] = (product_0 >> 32) ^ of_batch[3] ^ (Longs{} + key_1);
      of_batch[1] = product_1;
      of_batch[3] = product_0;
    }
    key_0 += Philox::weyl_0;
    key_1 += Philox::weyl_1;
  }
  for (int batch = 0; batch < batches; ++batch) {
    Longs const first = (words[batch][0] & 0xffffffffU) | (words[batch][1] << 32);
    Longs const second = (words[batch][2] & 0xffffffffU) | (words[batch][3] << 32);
    Longs const low = __builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
    Longs const high = __builtin_shufflevector(first, second, 4, 12, 5, 13, 6, 14, 7, 15);
    std::memcpy(out + 32 * batch, &low, sizeof(low));
    std::memcpy(out + 32 * batch + 16, &high, sizeof(high));
  }
}

}  // namespace heddle::lanes
