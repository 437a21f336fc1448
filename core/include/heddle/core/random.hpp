#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/tensor.hpp>
#include <string_view>

namespace heddle {

/// Philox4x32 (Salmon et al. 2011): four random words that depend on nothing but key and counter. Ten rounds are usual;
/// seven, the fewest that passed every test of BigCrush, are what dropout takes, where a step spends its time on them.
struct Philox {
  using Counter = std::array<std::uint32_t, 4>;

  static constexpr std::uint32_t multiplier_0 = 0xD2511F53U;
  static constexpr std::uint32_t multiplier_1 = 0xCD9E8D57U;
  static constexpr std::uint32_t weyl_0 = 0x9E3779B9U;
  static constexpr std::uint32_t weyl_1 = 0xBB67AE85U;
  static constexpr int rounds = 10;
  static constexpr int dropout_rounds = 7;

  static constexpr Counter words(std::uint64_t key, Counter counter, int round_count = rounds) {
    auto key_0 = static_cast<std::uint32_t>(key);
    auto key_1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < round_count; ++round) {
      std::uint64_t const product_0 = std::uint64_t{multiplier_0} * counter[0];
      std::uint64_t const product_1 = std::uint64_t{multiplier_1} * counter[2];
      counter = {
          static_cast<std::uint32_t>(product_1 >> 32) ^ counter[1] ^ key_0, static_cast<std::uint32_t>(product_1),
          static_cast<std::uint32_t>(product_0 >> 32) ^ counter[3] ^ key_1, static_cast<std::uint32_t>(product_0)};
      key_0 += weyl_0;
      key_1 += weyl_1;
    }
    return counter;
  }
};

/// SplitMix64's finaliser, a bijection: every bit of the input reaches every bit of the output.
constexpr std::uint64_t mix_bits(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL;
  return word ^ (word >> 31);
}

/// A key for one use of random numbers: the run's seed and the use's name (FNV-1a, then SplitMix64).
constexpr std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (char const letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
  }
  return mix_bits(hash + seed * 0x9E3779B97F4A7C15ULL);
}

/// Dropout of a [rows, columns] matrix whose rows are tokens. Which elements are kept depends on the key, the step, the
/// token's sample and position and the element's global column alone, never on how the work was split:
///
///   words = Philox::words(key, {sample[row], position[row], column / 8, step}, Philox::dropout_rounds)
///   half  = 16 bits of words: lane = column % 8; word = words[lane / 2]; low half for even lanes, high half for odd
///   ones kept  = half < keep_threshold(rate), scaled by 65536 / keep_threshold(rate)
///
/// For attention the element is the pair (query token, key position) of a head: column / 8 is replaced by
/// (global head << 20) + key_position / 8, with lane = key_position % 8; key_position counts from the start of the
/// whole sequence, however its keys are split.
struct Dropout {
  float rate = 0;  ///< 0: everything is kept, and nothing below is read.
  std::uint64_t key = 0;
  std::uint32_t step = 0;
  std::int32_t first_column = 0;  ///< the global column of column 0 (the global head of head 0 in attention)
  Tensor sample;                  ///< int32 [rows]
  Tensor position;                ///< int32 [rows]

  bool active() const { return rate > 0; }
  /// Kept where a uniform 16-bit number is below it.
  static constexpr std::uint32_t keep_threshold(float rate) {
    return static_cast<std::uint32_t>((1.0 - static_cast<double>(rate)) * 65536.0 + 0.5);
  }
  /// What a kept element is multiplied by, so that the mean stays.
  static constexpr double keep_scale(float rate) { return 65536.0 / keep_threshold(rate); }
};

}  // namespace heddle
