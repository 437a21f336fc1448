#include "bfloat16_sums.hpp"

namespace heddle {

namespace {

float widened(BFloat16Bits bits) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16U);
}

/// To the nearest, ties to even; a NaN stays one.
BFloat16Bits rounded(float value) {
  auto const word = __builtin_bit_cast(std::uint32_t, value);
  std::uint32_t const nan = (word >> 16U) | 0x40U;
  std::uint32_t const number = (word + 0x7fffU + ((word >> 16U) & 1U)) >> 16U;
  return static_cast<BFloat16Bits>((word & 0x7fffffffU) > 0x7f800000U ? nan : number);
}

}  // namespace

void add_bfloat16_with_v4(BFloat16Bits const* const* lists, std::size_t ranks, BFloat16Bits* result,
                          std::int64_t count) {
  constexpr std::int64_t block = 2048;
  float sums[block];
  for (std::int64_t begin = 0; begin < count; begin += block) {
    std::int64_t const here = count - begin < block ? count - begin : block;
    for (std::int64_t index = 0; index < here; ++index) {
      sums[index] = widened(lists[0][begin + index]) + widened(lists[1][begin + index]);
    }
    for (std::size_t rank = 2; rank < ranks; ++rank) {
      for (std::int64_t index = 0; index < here; ++index) {
        sums[index] += widened(lists[rank][begin + index]);
      }
    }
    for (std::int64_t index = 0; index < here; ++index) {
      result[begin + index] = rounded(sums[index]);
    }
  }
}

}  // namespace heddle
