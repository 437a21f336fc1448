#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"

namespace heddle {

namespace {

/// The papers' formulas, in float64.
struct ReferenceAdam {
  template <class Real>
  static void update(Execution& execution, AdamCall const& call) {
    Real* const value = call.value.data<Real>();
    Real const* const gradient = call.gradient.data<Real>();
    Real* const first_moment = call.first_moment.data<Real>();
    Real* const second_moment = call.second_moment.data<Real>();
    double const* const scalars = call.scalars.data<double>();
    double const beta1 = call.beta1;
    double const beta2 = call.beta2;
    double const epsilon = call.epsilon;
    double const weight_decay = call.weight_decay;
    bool const decoupled = call.decoupled;
    kernels::for_each(
        execution, "heddle::reference_adam", call.value.size(), KOKKOS_LAMBDA(std::int64_t i) {
          double const learning_rate = scalars[adam_scalars::learning_rate];
          double const gradient_scale = scalars[adam_scalars::gradient_scale];
          double const correction1 = scalars[adam_scalars::correction1];
          double const correction2 = scalars[adam_scalars::correction2];
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
};

}  // namespace

void add_adam_kernels(KernelRegistries& registries) {
  registries.of<Adam>().add("reference", speeds::reference, std::make_shared<AdamFrontEnd<ReferenceAdam>>());
}

}  // namespace heddle
