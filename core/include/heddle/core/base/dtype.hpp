#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <heddle/core/base/enumerations.hpp>
#include <type_traits>

namespace heddle {

/// Element types. float64 exists for the reference implementations and the tests that use them.
enum class DType : std::uint8_t { float32, bfloat16, int32, float64 };
template <>
inline constexpr std::array<std::string_view, 4> value_names<DType>{"float32", "bfloat16", "int32", "float64"};

constexpr std::size_t size_of(DType dtype) {
  constexpr std::array<std::size_t, 4> bytes{4, 2, 4, 8};
  auto const index = static_cast<std::size_t>(dtype);
  return index < bytes.size() ? bytes[index] : 0;
}

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

template <class Element>
struct DTypeOf;
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::float32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::float64> {};
template <>
struct DTypeOf<std::int32_t> : std::integral_constant<DType, DType::int32> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::bfloat16> {};

/// The type of statistics and reductions of activations of `dtype`: float64 for float64, float32 for all others.
constexpr DType statistics_dtype(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

/// The type of parameters and their gradients for activations of `dtype`: float64 for float64, else float32.
constexpr DType parameter_dtype(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

}  // namespace heddle
