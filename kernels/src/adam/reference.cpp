#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"

namespace heddle {

namespace {

template <class Real>
void update_as(Execution& execution, AdamCall const& call) {
  Real* const value = call.value.data<Real>();
  Real const* const gradient = call.gradient.data<Real>();
  Real* const first_moment = call.first_moment.data<Real>();
  Real* const second_moment = call.second_moment.data<Real>();
  double const learning_rate = call.learning_rate;
  double const beta1 = call.beta1;
  double const beta2 = call.beta2;
  double const epsilon = call.epsilon;
  double const gradient_scale = call.gradient_scale;
  double const weight_decay = call.weight_decay;
  bool const decoupled = call.decoupled;
  double const correction1 = 1 - std::pow(beta1, static_cast<double>(call.step));
  double const correction2 = 1 - std::pow(beta2, static_cast<double>(call.step));
  kernels::for_each(
      execution, "heddle::reference_adam", call.value.size(), KOKKOS_LAMBDA(std::int64_t i) {
        double const old = value[i];
        double const g = gradient[i] * gradient_scale + (decoupled ? 0.0 : weight_decay * old);
        double const m = beta1 * first_moment[i] + (1 - beta1) * g;
        double const v = beta2 * second_moment[i] + (1 - beta2) * g * g;
        double const decayed = decoupled ? old - learning_rate * weight_decay * old : old;
        first_moment[i] = static_cast<Real>(m);
        second_moment[i] = static_cast<Real>(v);
        value[i] =
            static_cast<Real>(decayed - learning_rate * (m / correction1) / (std::sqrt(v / correction2) + epsilon));
      });
}

/// The papers' formulas, in float64.
class ReferenceAdam final : public Adam {
 public:
  bool supports(AdamProblem const& problem) const override {
    return problem.dtype == DType::float32 || problem.dtype == DType::float64;
  }
  void update(Execution& execution, AdamCall const& call) override {
    kernels::with_real(call.value.dtype(), [&]<class Real>(Real) { update_as<Real>(execution, call); });
  }
};

}  // namespace

std::shared_ptr<Adam> make_reference_adam() {
  return std::make_shared<ReferenceAdam>();
}

}  // namespace heddle
