#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

// Marks functions that kernels call, also on a device. Needs no Kokkos.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define HEDDLE_HOST_DEVICE __host__ __device__
#else
#define HEDDLE_HOST_DEVICE
#endif

/// The exponentials that Heddle computes itself, without branches and library calls, so that loops over them
/// vectorise. The series work on numbers and on vectors of numbers.
namespace heddle {

/// 2^x for |x| <= 1/2, to about 2 units in the last place. Float is float or a vector of floats.
template <class Float>
HEDDLE_HOST_DEVICE inline Float exp2_series(Float x) {
  Float series = 1.32647266e-3F * x + 9.67151296e-3F;
  series = series * x + 5.55073375e-2F;
  series = series * x + 2.40222421e-1F;
  series = series * x + 6.93146978e-1F;
  return series * x + 1.0F;
}

/// 2^x for -1 <= x <= 0, with a relative error of 3 millionths: a thousandth of a rounding to bfloat16.
template <class Float>
HEDDLE_HOST_DEVICE inline Float rough_exp2_series(Float x) {
  Float series = 1.35341681e-2F * x + 5.20114603e-2F;
  series = series * x + 2.41442757e-1F;
  series = series * x + 6.93003834e-1F;
  return series * x + 1.00000259F;
}

/// e^x to about 2 units in the last place; 0 below -87.3, infinity above 88; NaN stays NaN. Free of branches, so that
/// loops over it vectorise. Two fused operations are explicit because the compiler may reassociate all other
/// operations.
HEDDLE_HOST_DEVICE inline float fast_exp(float x) {
  constexpr float lowest = -87.3F;
  constexpr float highest = 88.0F;
  float const bounded = x < lowest ? lowest : (x > highest ? highest : x);
  float const power = std::floor(bounded * 1.44269504F + 0.5F);
  float const rest = std::fma(power, 1.90465421e-9F, std::fma(power, -0.693147182F, bounded));
  float series = 1.98756922e-4F;
  series = series * rest + 1.39819994e-3F;
  series = series * rest + 8.33345205e-3F;
  series = series * rest + 4.16657962e-2F;
  series = series * rest + 1.66666657e-1F;
  series = series * rest + 0.5F;
  float const value = series * (rest * rest) + rest + 1.0F;
  // A NaN in `value` passes to the result, but the number converted to an integer must be finite; -126 is the lowest
  // power.
  float const number = power > -126.0F ? power : -126.0F;
  float const result = value * std::bit_cast<float>((static_cast<std::int32_t>(number) + 127) << 23);
  float const floored = x < lowest ? 0.0F : result;
  return x > highest ? std::numeric_limits<float>::infinity() : floored;
}

HEDDLE_HOST_DEVICE inline double fast_exp(double x) {
  return std::exp(x);
}

/// e^x for x ≤ 0, to about 2 units in the last place, in fewer operations than fast_exp: values below -86 count as -86
/// (e^-86 is about 10^-38); NaN stays NaN. 2^f for |f| ≤ 1/2 is a minimax polynomial.
HEDDLE_HOST_DEVICE inline float exp_of_negative(float x) {
  constexpr float log2_e = 1.44269504F;
  float const bounded = x < -86.0F ? -86.0F : x;
  float const power = std::rint(bounded * log2_e);
  float const rest = std::fma(bounded, log2_e, -power);
  float series = 0.00132647271F;
  series = series * rest + 0.00967151264F;
  series = series * rest + 0.0555073374F;
  series = series * rest + 0.240222421F;
  series = series * rest + 0.693146978F;
  series = series * rest + 1.0F;
  // A NaN passes to the result through `series`, but the number converted to an integer must be finite.
  float const number = power > -126.0F ? power : 0.0F;
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(series) + (static_cast<std::int32_t>(number) << 23));
}

HEDDLE_HOST_DEVICE inline double exp_of_negative(double x) {
  return std::exp(x);
}

/// tanh x, in float32 with a relative error of about 10^-6: a large cap multiplies the error of a small argument.
HEDDLE_HOST_DEVICE inline float fast_tanh(float x) {
  float const power = exp_of_negative(-2 * (x < 0 ? -x : x));
  float const magnitude = (1 - power) / (1 + power);
  float const square = x * x;
  float const series = x + x * square * (-0.333333333F + square * (0.133333333F - square * 0.0539682540F));
  float const beyond = x < 0 ? -magnitude : magnitude;
  return square < 0.01F ? series : beyond;
}

HEDDLE_HOST_DEVICE inline double fast_tanh(double x) {
  return std::tanh(x);
}

}  // namespace heddle
