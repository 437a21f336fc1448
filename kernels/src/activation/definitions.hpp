#pragma once

#include <Kokkos_Core.hpp>
#include <cmath>
#include <numbers>

/// The activation functions and their derivatives in float64, as the papers define them.
namespace heddle::kernels::definitions {

/// Computes max(x, 0) (Nair & Hinton 2010).
struct Relu {
  KOKKOS_INLINE_FUNCTION static double value(double x) { return x > 0 ? x : 0; }
  KOKKOS_INLINE_FUNCTION static double derivative(double x) { return x > 0 ? 1 : 0; }
};

/// Computes x Φ(x), Φ being the normal distribution function (Hendrycks & Gimpel 2016).
struct Gelu {
  KOKKOS_INLINE_FUNCTION static double cumulative(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
  KOKKOS_INLINE_FUNCTION static double value(double x) { return x * cumulative(x); }
  KOKKOS_INLINE_FUNCTION static double derivative(double x) {
    double const density = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    return cumulative(x) + x * density;
  }
};

/// The approximation 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))) of Hendrycks & Gimpel 2016.
struct GeluTanh {
  static constexpr double scale = 2 * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  static constexpr double cubic = 0.044715;
  KOKKOS_INLINE_FUNCTION static double tanh_of(double x) { return std::tanh(scale * (x + cubic * x * x * x)); }
  KOKKOS_INLINE_FUNCTION static double value(double x) { return 0.5 * x * (1 + tanh_of(x)); }
  KOKKOS_INLINE_FUNCTION static double derivative(double x) {
    double const t = tanh_of(x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * cubic * x * x);
  }
};

/// Computes x / (1 + exp(-x)) (Elfwing et al. 2017).
struct Silu {
  KOKKOS_INLINE_FUNCTION static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  KOKKOS_INLINE_FUNCTION static double value(double x) { return x * sigmoid(x); }
  KOKKOS_INLINE_FUNCTION static double derivative(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }
};

}  // namespace heddle::kernels::definitions
