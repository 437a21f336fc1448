#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle {

/// Element types. float64 exists for the reference implementations and the tests that use them.
enum class DType : std::uint8_t { float32, bfloat16, int32, float64 };

/// The upper half of a float32; conversion rounds to nearest even.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  constexpr explicit BFloat16(float value) {
    auto const word = std::bit_cast<std::uint32_t>(value);
    bool const nan = (word & 0x7fffffffU) > 0x7f800000U;
    bits = nan ? static_cast<std::uint16_t>((word >> 16) | 0x40U)
               : static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16) & 1U)) >> 16);
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::bfloat16:
      return 2;
    case DType::float64:
      return 8;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::bfloat16:
      return "bfloat16";
    case DType::int32:
      return "int32";
    case DType::float64:
      return "float64";
  }
  return "unknown";
}

template <class Element>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bfloat16;
};

/// The type of statistics and reductions of activations of `dtype`: float64 for float64, float32 for all others.
constexpr DType statistics_dtype(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

/// The type of parameters and their gradients beside activations of `dtype`: float64 for float64, else float32.
constexpr DType parameter_dtype(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

}  // namespace heddle
