#pragma once

#include <cmath>
#include <heddle/core/operations/adam.hpp>
#include <heddle/core/operations/kernel_author.hpp>

namespace heddle::kernels {

/// The factors of an update, from the call and the step's scalars.
template <class Real>
struct AdamFactors {
  Real beta1, beta2, new1, new2, epsilon, step_size, deviation_scale, gradient_scale, gradient_decay, kept;

  /// Updates one element and its moments.
  KOKKOS_INLINE_FUNCTION void update(Real& value, Real gradient, Real& first_moment, Real& second_moment) const {
    Real const g = gradient * gradient_scale + gradient_decay * value;
    Real const m = beta1 * first_moment + new1 * g;
    Real const v = beta2 * second_moment + new2 * g * g;
    first_moment = m;
    second_moment = v;
    value = kept * value - step_size * m / (std::sqrt(v) * deviation_scale + epsilon);
  }
};

/// The call's constants: numbers that do not change from step to step.
struct AdamSettings {
  double beta1, beta2, epsilon, weight_decay;
  bool decoupled;
  double const* scalars;

  explicit AdamSettings(AdamCall const& call)
      : beta1(call.beta1),
        beta2(call.beta2),
        epsilon(call.epsilon),
        weight_decay(call.weight_decay),
        decoupled(call.decoupled),
        scalars(call.scalars.data<double>()) {}

  template <class Real>
  KOKKOS_INLINE_FUNCTION AdamFactors<Real> factors() const {
    double const learning_rate = scalars[adam_scalars::learning_rate];
    return {.beta1 = static_cast<Real>(beta1),
            .beta2 = static_cast<Real>(beta2),
            .new1 = static_cast<Real>(1 - beta1),
            .new2 = static_cast<Real>(1 - beta2),
            .epsilon = static_cast<Real>(epsilon),
            .step_size = static_cast<Real>(learning_rate / scalars[adam_scalars::correction1]),
            .deviation_scale = static_cast<Real>(1 / std::sqrt(scalars[adam_scalars::correction2])),
            .gradient_scale = static_cast<Real>(scalars[adam_scalars::gradient_scale]),
            .gradient_decay = static_cast<Real>(decoupled ? 0 : weight_decay),
            .kept = static_cast<Real>(decoupled ? 1 - learning_rate * weight_decay : 1)};
  }
};

}  // namespace heddle::kernels
