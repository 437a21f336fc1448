#pragma once

#include <numbers>

#include "functions.hpp"
#include "vector/lanes.hpp"

/// The built-in activation functions of vectors: the formulas of functions.hpp.
namespace heddle::simd_activation {
namespace {

using lanes::Floats;

inline Floats magnitude(Floats x) {
  return x < 0.0F ? -x : x;
}

/// 1 / x for x from 1 to 2^100, to about 2 units in the last place: a division takes longer than all the rest of a
/// function.
inline Floats reciprocal(Floats x) {
#ifdef __AVX512F__
  Floats const rough = reinterpret_cast<Floats>(_mm512_maskz_rcp14_ps(0xffff, reinterpret_cast<__m512>(x)));
  return rough * (2.0F - x * rough);
#else
  return 1.0F / x;
#endif
}

/// Beyond this magnitude every function here is, in float32, what it is at infinity: 0, 1 or x.
inline constexpr float large = 128.0F;

inline Floats bounded(Floats x) {
  return x > large ? lanes::all(large) : x;
}

/// 1 / (1 + exp(-x)). NaN stays NaN.
inline Floats sigmoid(Floats x) {
  Floats const power = lanes::exp2_of_negative(-std::numbers::log2e_v<float> * bounded(magnitude(x)));
  return (x < 0.0F ? power : lanes::all(1)) * reciprocal(1.0F + power);
}

struct Relu {
  static Floats value(Floats x) { return x > 0.0F ? x : Floats{}; }
  static Floats derivative(Floats x) { return x > 0.0F ? lanes::all(1) : Floats{}; }
};

struct Gelu {
  /// The normal distribution function Φ(x) and exp(-x²/2), by the series of kernels::normal.
  struct Normal {
    Floats cumulative, exponential;
  };
  static Normal normal(Floats x) {
    Floats const size = bounded(magnitude(x));
    Floats const exponential = lanes::exp2_of_negative(-0.5F * std::numbers::log2e_v<float> * size * size);
    Floats const t = reciprocal(1.0F + 0.3275911F * std::numbers::sqrt2_v<float> / 2.0F * size);
    Floats series = 1.061405429F * t - 1.453152027F;
    series = series * t + 1.421413741F;
    series = series * t - 0.284496736F;
    series = series * t + 0.254829592F;
    Floats const tail = 0.5F * series * t * exponential;
    return {x < 0.0F ? tail : 1.0F - tail, exponential};
  }
  static Floats value(Floats x) { return x * normal(x).cumulative; }
  static Floats derivative(Floats x) {
    constexpr float inverse_sqrt_2_pi = std::numbers::inv_sqrtpi_v<float> / std::numbers::sqrt2_v<float>;
    Normal const at = normal(x);
    return at.cumulative + x * inverse_sqrt_2_pi * at.exponential;
  }
};

struct GeluTanh {
  static constexpr float scale = 4 * std::numbers::inv_sqrtpi_v<float> / std::numbers::sqrt2_v<float>;
  static constexpr float cubic = 0.044715F;

  static Floats gate(Floats x) { return sigmoid(scale * x * (1.0F + cubic * x * x)); }
  static Floats value(Floats x) { return x * gate(x); }
  static Floats derivative(Floats x) {
    Floats const at = gate(x);
    return at * (1.0F + x * (1.0F - at) * scale * (1.0F + 3.0F * cubic * x * x));
  }
};

struct Silu {
  static Floats value(Floats x) { return x * sigmoid(x); }
  static Floats derivative(Floats x) {
    Floats const at = sigmoid(x);
    return at * (1.0F + x * (1.0F - at));
  }
};

struct Sigmoid {
  static Floats value(Floats x) { return sigmoid(x); }
  static Floats derivative(Floats x) {
    Floats const at = sigmoid(x);
    return at * (1.0F - at);
  }
};

/// The vector form of a function of functions.hpp.
inline Relu vector_form(kernels::Relu) {
  return {};
}
inline Gelu vector_form(kernels::Gelu) {
  return {};
}
inline GeluTanh vector_form(kernels::GeluTanh) {
  return {};
}
inline Silu vector_form(kernels::Silu) {
  return {};
}
inline Sigmoid vector_form(kernels::Sigmoid) {
  return {};
}

}  // namespace
}  // namespace heddle::simd_activation
