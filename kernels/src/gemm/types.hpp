#pragma once

#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/kernel_author.hpp>
#include <type_traits>

/// The element types that a GEMM may have, the conversion of its elements to numbers, and its operands.
namespace heddle::kernels {

inline bool has_gemm_types(GemmProblem const& problem) {
  auto const fits = [](DType dtype) { return dtype == DType::bfloat16 || dtype == DType::float32; };
  if (problem.dtype == DType::float64) {
    return problem.b_dtype == problem.dtype && problem.output_dtype == problem.dtype;
  }
  return fits(problem.dtype) && fits(problem.b_dtype) && fits(problem.output_dtype) &&
         (problem.dtype == DType::bfloat16 || problem.output_dtype == DType::float32);
}

/// Calls `work(A{}, B{}, C{})` with the problem's element types, where A is one of Types.
template <class Types = FloatingTypes, class Work>
void with_gemm_types(GemmProblem const& problem, Work&& work) {
  Types::with(problem.dtype, [&]<class A>(A) {
    if constexpr (std::is_same_v<A, BFloat16>) {
      auto const with_output = [&]<class B>(B) {
        problem.output_dtype == DType::bfloat16 ? work(A{}, B{}, BFloat16{}) : work(A{}, B{}, float{});
      };
      problem.b_dtype == DType::bfloat16 ? with_output(BFloat16{}) : with_output(float{});
    } else if constexpr (std::is_same_v<A, float>) {
      problem.b_dtype == DType::bfloat16 ? work(A{}, BFloat16{}, A{}) : work(A{}, A{}, A{});
    } else {
      work(A{}, A{}, A{});
    }
  });
}

/// An element of b as the factor of elements of type A: float32 is rounded if A is bfloat16.
template <class A, class B>
KOKKOS_INLINE_FUNCTION ArithmeticType<A> factor(B element) {
  if constexpr (std::is_same_v<A, BFloat16> && std::is_same_v<B, float>) {
    return static_cast<float>(BFloat16(element));
  } else {
    return static_cast<ArithmeticType<A>>(element);
  }
}

/// A matrix that may be transposed: element (i, j) is data[i * row_stride + j * column_stride].
template <class Element>
struct Oriented {
  Element const* data;
  std::int64_t row_stride;
  std::int64_t column_stride;

  Oriented(Tensor const& tensor, bool transposed)
      : data(tensor.data<Element>()),
        row_stride(transposed ? 1 : tensor.row_stride()),
        column_stride(transposed ? tensor.row_stride() : 1) {}
};

}  // namespace heddle::kernels
