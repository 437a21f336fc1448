#pragma once

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/norm_kind.hpp>
#include <string>
#include <string_view>

namespace heddle::kernels {

/// The arithmetic in which kinds of norm differ, as the work items of a kernel see it:
///
///     normalized = (x - centre) * reciprocal * weight + bias,   reciprocal = 1 / sqrt(squares / divisor + epsilon)
///
/// where the centre is the row's mean or 0 and `squares` is the sum of (x - centre)². Then, with g = grad_normalized *
/// weight and z = (x - centre) * reciprocal, the gradient of x is
///
///     reciprocal * (g - (mean(g), where there is a centre) - z * sum(g * z) / divisor)
template <class Real>
struct NormRule {
  bool centred;
  Real divisor;
  Real epsilon;

  /// Throws for a kind that is not built in.
  NormRule(std::string_view kind, std::int64_t columns, double given_epsilon)
      : centred(require(kind).centred),
        divisor(static_cast<Real>(columns)),
        epsilon(static_cast<Real>(given_epsilon)) {}

  KOKKOS_INLINE_FUNCTION Real reciprocal(Real squares) const {
    return Real{1} / std::sqrt(squares / divisor + epsilon);
  }

 private:
  static NormTraits const& require(std::string_view kind) {
    NormTraits const* const traits = built_in_norm(kind);
    if (traits == nullptr) {
      throw Error("a kernel was called for the norm '" + std::string(kind) + "', which its supports() refuses");
    }
    return *traits;
  }
};

}  // namespace heddle::kernels
