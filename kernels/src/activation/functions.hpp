#pragma once

#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/kernel_author.hpp>
#include <numbers>
#include <string>
#include <string_view>

/// The built-in activation functions. `Definition` is a function and its derivative in float64 as the paper defines
/// them, for `reference`; `value` and `derivative` are forms that vectorise.
namespace heddle::kernels {

/// Computes max(x, 0) (Nair & Hinton 2010).
struct Relu {
  static constexpr std::string_view name = "relu";

  struct Definition {
    KOKKOS_INLINE_FUNCTION static double value(double x) { return x > 0 ? x : 0; }
    KOKKOS_INLINE_FUNCTION static double derivative(double x) { return x > 0 ? 1 : 0; }
  };

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
  static constexpr std::string_view name = "gelu";

  struct Definition {
    KOKKOS_INLINE_FUNCTION static double cumulative(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
    KOKKOS_INLINE_FUNCTION static double value(double x) { return x * cumulative(x); }
    KOKKOS_INLINE_FUNCTION static double derivative(double x) {
      double const density = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
      return cumulative(x) + x * density;
    }
  };

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

/// The approximation 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))) of Hendrycks & Gimpel 2016, which equals x σ(2u) with
/// u = √(2/π) (x + 0.044715 x³).
struct GeluTanh {
  static constexpr std::string_view name = "gelu_tanh";

  struct Definition {
    static constexpr double scale = 2 * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    static constexpr double cubic = 0.044715;
    KOKKOS_INLINE_FUNCTION static double tanh_of(double x) { return std::tanh(scale * (x + cubic * x * x * x)); }
    KOKKOS_INLINE_FUNCTION static double value(double x) { return 0.5 * x * (1 + tanh_of(x)); }
    KOKKOS_INLINE_FUNCTION static double derivative(double x) {
      double const t = tanh_of(x);
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * cubic * x * x);
    }
  };

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
  static constexpr std::string_view name = "silu";

  struct Definition {
    KOKKOS_INLINE_FUNCTION static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
    KOKKOS_INLINE_FUNCTION static double value(double x) { return x * sigmoid(x); }
    KOKKOS_INLINE_FUNCTION static double derivative(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }
  };

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

/// Computes 1 / (1 + exp(-x)), the gate of gated linear units (Dauphin et al. 2017).
struct Sigmoid {
  static constexpr std::string_view name = "sigmoid";

  struct Definition {
    KOKKOS_INLINE_FUNCTION static double value(double x) { return 1 / (1 + std::exp(-x)); }
    KOKKOS_INLINE_FUNCTION static double derivative(double x) { return value(x) * (1 - value(x)); }
  };

  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real value(Real x) {
    return Real{1} / (Real{1} + fast_exp(-x));
  }
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real derivative(Real x) {
    Real const at = value(x);
    return at * (Real{1} - at);
  }
};

/// All functions, in the order of activation_functions.
template <class... Functions>
struct FunctionList {
  /// Calls `work(Function{})` with the function of that name; throws for one that is not built in.
  template <class Work>
  static void with(std::string_view name, Work const& work) {
    bool const found = ((name == Functions::name && (work(Functions{}), true)) || ...);
    if (!found) {
      throw Error("a kernel was called for the activation '" + std::string(name) + "', which its supports() refuses");
    }
  }
  static constexpr std::array names{Functions::name...};
};
using BuiltInFunctions = FunctionList<Relu, Gelu, GeluTanh, Silu, Sigmoid>;
static_assert(std::ranges::equal(BuiltInFunctions::names, activation_functions, {}, {}, &ActivationFunction::name),
              "every function that core names has its arithmetic here");

/// The tensors of a call; those of the other direction are unset.
template <class Element>
struct ActivationRows {
  Rows<Element> input, gate, output, grad_output, grad_input, grad_gate;
  DropoutRule dropout;
  std::int64_t rows, columns;

  ActivationRows(ActivationCall const& call, Tensor const& result)
      : input(rows_of<Element>(call.input)),
        gate(rows_of<Element>(call.gate)),
        output(rows_of<Element>(result)),
        dropout(call.dropout),
        rows(call.input.dim(0)),
        columns(call.input.dim(1)) {}
  ActivationRows(ActivationCall const& call, Tensor const& given, ActivationGradients const& gradients)
      : ActivationRows(call, call.output) {
    grad_output = rows_of<Element>(given);
    grad_input = rows_of<Element>(gradients.input);
    grad_gate = rows_of<Element>(gradients.gate);
  }
};

}  // namespace heddle::kernels
