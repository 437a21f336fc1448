#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace heddle {

/// Philox4x32 (Salmon et al. 2011): four random words that depend only on key and counter. Ten rounds are usual;
/// dropout, where random numbers cost much of a step, uses seven, the fewest that passed every test of BigCrush.
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

/// SplitMix64's finaliser, a bijection: every output bit depends on every input bit.
constexpr std::uint64_t mix_bits(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL;
  return word ^ (word >> 31);
}

/// The key of one use of random numbers, from the run's seed and the use's name (FNV-1a, then SplitMix64).
constexpr std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (char const letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
  }
  return mix_bits(hash + seed * 0x9E3779B97F4A7C15ULL);
}

}  // namespace heddle
