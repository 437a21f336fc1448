#pragma once

#include <heddle/core/base/dtype.hpp>

namespace swish {

/// What elements of a type are computed in: training in bfloat16 stores activations in two bytes and computes in
/// float32.
template <class Element>
struct Arithmetic {
  using Type = Element;
};
template <>
struct Arithmetic<heddle::BFloat16> {
  using Type = float;
};
template <class Element>
using ArithmeticType = typename Arithmetic<Element>::Type;

/// Calls `work(Element{})` with the element type of tensors of activations: any but int32.
template <class Work>
void with_element(heddle::DType dtype, Work&& work) {
  switch (dtype) {
    case heddle::DType::float32:
      return work(float{});
    case heddle::DType::bfloat16:
      return work(heddle::BFloat16{});
    default:
      return work(double{});
  }
}

}  // namespace swish
