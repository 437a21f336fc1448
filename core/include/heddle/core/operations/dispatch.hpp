#pragma once

#include <heddle/core/base/dtype.hpp>
#include <heddle/core/base/error.hpp>
#include <string>

/// From a tensor's dtype to the type of its elements.
namespace heddle::kernels {

/// Types in which fast kernels compute with elements of a floating type, and in which they store statistics.
template <class Element>
struct Arithmetic {
  using Type = Element;
};
template <>
struct Arithmetic<BFloat16> {
  using Type = float;
};
template <class Element>
using ArithmeticType = typename Arithmetic<Element>::Type;

/// The element types for which a kernel is compiled.
template <class... Elements>
struct ElementTypes {
  static constexpr bool contain(DType dtype) { return ((dtype == DTypeOf<Elements>::value) || ...); }

  /// Calls `work(Element{})` for the type that `dtype` names.
  template <class Work>
  static void with(DType dtype, Work&& work) {
    if (!((dtype == DTypeOf<Elements>::value && (work(Elements{}), true)) || ...)) {
      throw Error("a kernel was called with " + std::string(name_of(dtype)) + ", which its supports() refuses");
    }
  }
  /// Calls `work(Real{})` for the arithmetic type that `dtype` names.
  template <class Work>
  static void with_real(DType dtype, Work&& work) {
    ElementTypes<ArithmeticType<Elements>...>::with(dtype, work);
  }
};
using FloatingTypes = ElementTypes<float, double, BFloat16>;

/// Calls `work(Element{})` for a floating dtype's element type.
template <class Work>
void with_floating(DType dtype, Work&& work) {
  FloatingTypes::with(dtype, work);
}

}  // namespace heddle::kernels
