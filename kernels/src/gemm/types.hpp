#pragma once

#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/kernel_author.hpp>
#include <type_traits>

/// The element types that a GEMM may have, and the conversion of its elements to numbers.
namespace heddle::kernels {

inline bool has_gemm_types(GemmProblem const& problem) {
  if (problem.dtype == DType::bfloat16) {
    auto const fits = [](DType dtype) { return dtype == DType::bfloat16 || dtype == DType::float32; };
    return fits(problem.b_dtype) && fits(problem.output_dtype);
  }
  return (problem.dtype == DType::float32 || problem.dtype == DType::float64) && problem.b_dtype == problem.dtype &&
         problem.output_dtype == problem.dtype;
}

/// Calls `work(A{}, B{}, C{})` with the problem's element types.
template <class Work>
void with_gemm_types(GemmProblem const& problem, Work&& work) {
  if (problem.dtype != DType::bfloat16) {
    return with_real(problem.dtype, [&]<class Real>(Real) { work(Real{}, Real{}, Real{}); });
  }
  auto const with_output = [&]<class B>(B) {
    problem.output_dtype == DType::bfloat16 ? work(BFloat16{}, B{}, BFloat16{}) : work(BFloat16{}, B{}, float{});
  };
  problem.b_dtype == DType::bfloat16 ? with_output(BFloat16{}) : with_output(float{});
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

}  // namespace heddle::kernels
