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

/// Calls `work(Real{})` with the float32 or float64 type that `dtype` names.
template <class Work>
void with_real(DType dtype, Work&& work) {
  switch (dtype) {
    case DType::float32:
      return work(float{});
    case DType::float64:
      return work(double{});
    default:
      throw Error("a kernel was called with " + std::string(name_of(dtype)) + ", which its supports() refuses");
  }
}

/// Calls `work(Element{})` for a floating dtype's element type.
template <class Work>
void with_floating(DType dtype, Work&& work) {
  switch (dtype) {
    case DType::float32:
      return work(float{});
    case DType::float64:
      return work(double{});
    case DType::bfloat16:
      return work(BFloat16{});
    case DType::int32:
      break;
  }
  throw Error("a kernel needs floating-point elements, not " + std::string(name_of(dtype)));
}

}  // namespace heddle::kernels
