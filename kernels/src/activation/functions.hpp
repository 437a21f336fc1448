#pragma once

#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/kernel_author.hpp>
#include <numbers>

/// The activation functions in float32 and float64, in forms that vectorise.
namespace heddle::kernels {

struct Relu {
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real value(Real x) {
    return x > Real{0} ? x : Real{0};
  }
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real derivative(Real x) {
    return x > Real{0} ? Real{1} : Real{0};
  }
};

/// The normal distribution function Φ(x) and exp(-x²/2).
template <class Real>
struct Normal {
  Real cumulative, exponential;
};

/// Abramowitz & Stegun 7.1.26: erf to 1.5e-7, for the upper tail, so that both tails keep their relative precision.
/// Free of branches, so that loops over it vectorise.
KOKKOS_INLINE_FUNCTION Normal<float> normal(float x) {
  float const exponential = fast_exp(-0.5F * x * x);
  float const t = 1.0F / (1.0F + 0.3275911F * std::numbers::sqrt2_v<float> / 2.0F * std::fabs(x));
  float series = 1.061405429F;
  series = series * t - 1.453152027F;
  series = series * t + 1.421413741F;
  series = series * t - 0.284496736F;
  series = series * t + 0.254829592F;
  float const tail = 0.5F * series * t * exponential;
  return {x < 0.0F ? tail : 1.0F - tail, exponential};
}

KOKKOS_INLINE_FUNCTION Normal<double> normal(double x) {
  return {0.5 * std::erfc(-x / std::numbers::sqrt2), std::exp(-0.5 * x * x)};
}

/// Computes x Φ(x) (Hendrycks & Gimpel 2016).
struct Gelu {
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real value(Real x) {
    return x * normal(x).cumulative;
  }
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real derivative(Real x) {
    constexpr Real inverse_sqrt_2_pi = std::numbers::inv_sqrtpi_v<Real> / std::numbers::sqrt2_v<Real>;
    Normal<Real> const at = normal(x);
    return at.cumulative + x * inverse_sqrt_2_pi * at.exponential;
  }
};

/// Computes x σ(2u) with u = √(2/π) (x + 0.044715 x³), which is the tanh form of Hendrycks & Gimpel 2016.
struct GeluTanh {
  /// σ(2u), and the derivative of 2u.
  template <class Real>
  struct Gate {
    Real sigmoid, slope;
  };
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Gate<Real> gate(Real x) {
    constexpr Real scale = Real{4} * std::numbers::inv_sqrtpi_v<Real> / std::numbers::sqrt2_v<Real>;
    constexpr auto cubic = static_cast<Real>(0.044715);
    Real const square = x * x;
    return {Real{1} / (Real{1} + fast_exp(-scale * x * (Real{1} + cubic * square))),
            scale * (Real{1} + Real{3} * cubic * square)};
  }
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real value(Real x) {
    return x * gate(x).sigmoid;
  }
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real derivative(Real x) {
    Gate<Real> const at = gate(x);
    return at.sigmoid * (Real{1} + x * (Real{1} - at.sigmoid) * at.slope);
  }
};

/// Computes x / (1 + exp(-x)) (Elfwing et al. 2017).
struct Silu {
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real value(Real x) {
    return x / (Real{1} + fast_exp(-x));
  }
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real derivative(Real x) {
    Real const sigmoid = Real{1} / (Real{1} + fast_exp(-x));
    return sigmoid * (Real{1} + x * (Real{1} - sigmoid));
  }
};

/// Calls `work(Function{}, Element{})` with the call's function and element type.
template <class Work>
void with_activation(ActivationCall const& call, Work const& work) {
  with_floating(call.input.dtype(), [&]<class Element>(Element element) {
    if (call.function == "relu") {
      work(Relu{}, element);
    } else if (call.function == "gelu") {
      work(Gelu{}, element);
    } else if (call.function == "gelu_tanh") {
      work(GeluTanh{}, element);
    } else {
      work(Silu{}, element);
    }
  });
}

}  // namespace heddle::kernels
