#pragma once

#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>

namespace heddle::kernels {

/// What a row's losses and gradient are made with.
template <class Real>
struct LossRule {
  Real smoothing;
  Real share;          ///< of one entry of the vocabulary: 1 / its size
  Real scale;          ///< of the gradient
  Real wanted_of_all;  ///< scaled, of every entry, and what the target has on top of it
  Real wanted_of_target;

  explicit LossRule(SoftmaxCrossEntropyCall const& call, double scale_of_gradient = 1)
      : smoothing(static_cast<Real>(call.label_smoothing)),
        share(Real{1} / static_cast<Real>(call.vocabulary_size)),
        scale(static_cast<Real>(scale_of_gradient)),
        wanted_of_all(
            static_cast<Real>(scale_of_gradient * call.label_smoothing / static_cast<double>(call.vocabulary_size))),
        wanted_of_target(static_cast<Real>(scale_of_gradient * (1 - call.label_smoothing))) {}

  /// From a row's statistics, the smoothed loss and the plain one.
  KOKKOS_INLINE_FUNCTION void write_losses(Real const* statistics, Real* losses) const {
    Real const log_normalizer = statistics[0] + std::log(statistics[1]);
    Real const of_target = log_normalizer - statistics[2];
    Real const of_all = log_normalizer - statistics[3] * share;
    losses[0] = of_target + smoothing * (of_all - of_target);
    losses[1] = of_target;
  }
};

}  // namespace heddle::kernels
