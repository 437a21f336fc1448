#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"

namespace heddle {

namespace {

/// Elements per work item.
constexpr std::int64_t block = 4096;

template <class Real>
void update_as(Execution& execution, AdamCall const& call) {
  Real* const values = call.value.data<Real>();
  Real const* const gradients = call.gradient.data<Real>();
  Real* const first_moments = call.first_moment.data<Real>();
  Real* const second_moments = call.second_moment.data<Real>();
  double const correction1 = 1 - std::pow(call.beta1, static_cast<double>(call.step));
  double const correction2 = 1 - std::pow(call.beta2, static_cast<double>(call.step));
  auto const beta1 = static_cast<Real>(call.beta1);
  auto const beta2 = static_cast<Real>(call.beta2);
  auto const new1 = static_cast<Real>(1 - call.beta1);
  auto const new2 = static_cast<Real>(1 - call.beta2);
  auto const step_size = static_cast<Real>(call.learning_rate / correction1);
  auto const deviation_scale = static_cast<Real>(1 / std::sqrt(correction2));
  auto const epsilon = static_cast<Real>(call.epsilon);
  auto const gradient_scale = static_cast<Real>(call.gradient_scale);
  auto const gradient_decay = static_cast<Real>(call.decoupled ? 0 : call.weight_decay);
  auto const kept = static_cast<Real>(call.decoupled ? 1 - call.learning_rate * call.weight_decay : 1);
  std::int64_t const size = call.value.size();
  kernels::for_each(
      execution, "heddle::adam", (size + block - 1) / block, KOKKOS_LAMBDA(std::int64_t item) {
        std::int64_t const begin = item * block;
        std::int64_t const count = size - begin < block ? size - begin : block;
        Real* const KOKKOS_RESTRICT value = values + begin;
        Real const* const KOKKOS_RESTRICT gradient = gradients + begin;
        Real* const KOKKOS_RESTRICT first_moment = first_moments + begin;
        Real* const KOKKOS_RESTRICT second_moment = second_moments + begin;
        for (std::int64_t i = 0; i < count; ++i) {
          Real const g = gradient[i] * gradient_scale + gradient_decay * value[i];
          Real const m = beta1 * first_moment[i] + new1 * g;
          Real const v = beta2 * second_moment[i] + new2 * g * g;
          first_moment[i] = m;
          second_moment[i] = v;
          value[i] = kept * value[i] - step_size * m / (std::sqrt(v) * deviation_scale + epsilon);
        }
      });
}

class KokkosAdam final : public Adam {
 public:
  bool supports(AdamProblem const& problem) const override {
    return problem.dtype == DType::float32 || problem.dtype == DType::float64;
  }
  void update(Execution& execution, AdamCall const& call) override {
    kernels::with_real(call.value.dtype(), [&]<class Real>(Real) { update_as<Real>(execution, call); });
  }
};

}  // namespace

void add_portable_adam_kernels(KernelRegistries& registries) {
  registries.of<Adam>().add("kokkos", speeds::portable, std::make_shared<KokkosAdam>());
}

}  // namespace heddle
