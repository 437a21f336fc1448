#pragma once

#include <bit>
#include <cstdint>

namespace heddle {

/// IEEE 754's binary16, as other systems' files have it; nothing computes in it. Conversion rounds to nearest even:
/// numbers of 65520 and more become infinite.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  constexpr explicit Float16(float value) {
    auto const word = std::bit_cast<std::uint32_t>(value);
    std::uint32_t const magnitude = word & 0x7fffffffU;
    std::uint32_t half = 0x7c00U;
    if (magnitude > infinity) {
      half = 0x7e00U;
    } else if (magnitude < smallest_normal) {
      // A float32 of [1/2, 1) has the spacing of binary16's subnormal numbers, so that this sum rounds to them.
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
    } else if (magnitude < overflow) {
      half = (magnitude - exponent_shift + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
    }
    bits = static_cast<std::uint16_t>(((word >> 16) & 0x8000U) | half);
  }
  constexpr explicit operator float() const {
    std::uint32_t const sign = (bits & 0x8000U) << 16;
    std::uint32_t const exponent = bits & 0x7c00U;
    std::uint32_t const magnitude = static_cast<std::uint32_t>(bits & 0x7fffU) << 13;
    if (exponent == 0) {  // zero or subnormal
      float const value = static_cast<float>(bits & 0x3ffU) * 0x1p-24F;
      return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
    }
    return std::bit_cast<float>(sign | (exponent == 0x7c00U ? infinity | magnitude : magnitude + exponent_shift));
  }

 private:
  static constexpr std::uint32_t infinity = 0x7f800000U;
  static constexpr std::uint32_t smallest_normal = 0x38800000U;  // 2^-14
  static constexpr std::uint32_t overflow = 0x477ff000U;         // 65520, half-way between 65504 and 2^16
  static constexpr std::uint32_t exponent_shift = 112U << 23;    // the difference of the exponents' biases
};

}  // namespace heddle
