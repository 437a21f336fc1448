#pragma once

#include <Kokkos_Core.hpp>
#include <bit>
#include <cstdint>
#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <type_traits>

// A function of which each file has one copy, its own: as a part of every loop that uses it, it would be most of what
// the compiler works on. Devices want it in the loops.
#if defined(__GNUC__) && !defined(__CUDACC__) && !defined(__HIPCC__)
#define HEDDLE_ONE_COPY [[gnu::noinline, maybe_unused]] static
#else
#define HEDDLE_ONE_COPY KOKKOS_INLINE_FUNCTION
#endif

/// Access to a tensor's elements inside kernels.
namespace heddle::kernels {

/// The rows of a matrix; `data` is null for an empty tensor.
template <class Element>
struct Rows {
  Element* data = nullptr;
  std::int64_t stride = 0;

  KOKKOS_INLINE_FUNCTION Element* operator[](std::int64_t row) const { return data + row * stride; }
  KOKKOS_INLINE_FUNCTION explicit operator bool() const { return data != nullptr; }
};

template <class Element>
Rows<Element> rows_of(Tensor const& tensor) {
  return tensor.empty() ? Rows<Element>{} : Rows<Element>{tensor.data<Element>(), tensor.row_stride()};
}

/// An element as a `Real` to compute with; the conversion is exact.
template <class Real, class Element>
KOKKOS_INLINE_FUNCTION constexpr Real wide(Element element) {
  return static_cast<Real>(static_cast<ArithmeticType<Element>>(element));
}
/// The `Element` nearest to `value`; ties round to even, and NaN stays NaN.
template <class Element, class Real>
KOKKOS_INLINE_FUNCTION constexpr Element narrow(Real value) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    // BFloat16's own conversion, in the form that compilers turn into the fewest vector instructions.
    auto const number = static_cast<float>(value);
    auto const word = std::bit_cast<std::uint32_t>(number);
    std::uint32_t const nearest = word + 0x7fffU + ((word >> 16) & 1U);
    BFloat16 result;
    result.bits = static_cast<std::uint16_t>((number == number ? nearest : word | 0x400000U) >> 16);
    return result;
  } else {
    return static_cast<Element>(value);
  }
}

/// narrow() for a value computed only from constants and elements of the same type, where it may be cheaper: a
/// processor's NaN then has bits only where a BFloat16 has them (a device's may not), so that no NaN is rounded to a
/// number.
template <class Element, class Real>
KOKKOS_INLINE_FUNCTION constexpr Element narrow_again(Real value) {
  using Space = Kokkos::DefaultExecutionSpace;
  constexpr bool on_processor = std::is_same_v<Space::memory_space, Kokkos::HostSpace>;  // also an emulated device
  if constexpr (std::is_same_v<Element, BFloat16> && on_processor) {
    auto const word = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    BFloat16 result;
    result.bits = static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16) & 1U)) >> 16);
    return result;
  } else {
    return narrow<Element>(value);
  }
}

}  // namespace heddle::kernels
