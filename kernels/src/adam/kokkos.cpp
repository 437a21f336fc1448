#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"

namespace heddle {

namespace {

/// Elements per work item.
constexpr std::int64_t block = 4096;

/// The factors of an update, from the call and the step's scalars.
template <class Real>
struct Factors {
  Real beta1, beta2, new1, new2, epsilon, step_size, deviation_scale, gradient_scale, gradient_decay, kept;
};

/// The call's constants: numbers that do not change from step to step.
struct Settings {
  double beta1, beta2, epsilon, weight_decay;
  bool decoupled;
  double const* scalars;

  explicit Settings(AdamCall const& call)
      : beta1(call.beta1),
        beta2(call.beta2),
        epsilon(call.epsilon),
        weight_decay(call.weight_decay),
        decoupled(call.decoupled),
        scalars(call.scalars.data<double>()) {}

  template <class Real>
  KOKKOS_INLINE_FUNCTION Factors<Real> factors() const {
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

template <class Real>
void update_as(Execution& execution, AdamCall const& call) {
  Real* const values = call.value.data<Real>();
  Real const* const gradients = call.gradient.data<Real>();
  Real* const first_moments = call.first_moment.data<Real>();
  Real* const second_moments = call.second_moment.data<Real>();
  BFloat16* const copies = kernels::rows_of<BFloat16>(call.compute_copy).data;
  Settings const settings(call);
  std::int64_t const size = call.value.size();
  kernels::for_each(
      execution, "heddle::adam", (size + block - 1) / block, KOKKOS_LAMBDA(std::int64_t item) {
        Factors<Real> const factors = settings.template factors<Real>();
        std::int64_t const begin = item * block;
        std::int64_t const count = size - begin < block ? size - begin : block;
        Real* const KOKKOS_RESTRICT value = values + begin;
        Real const* const KOKKOS_RESTRICT gradient = gradients + begin;
        Real* const KOKKOS_RESTRICT first_moment = first_moments + begin;
        Real* const KOKKOS_RESTRICT second_moment = second_moments + begin;
        for (std::int64_t i = 0; i < count; ++i) {
          Real const g = gradient[i] * factors.gradient_scale + factors.gradient_decay * value[i];
          Real const m = factors.beta1 * first_moment[i] + factors.new1 * g;
          Real const v = factors.beta2 * second_moment[i] + factors.new2 * g * g;
          first_moment[i] = m;
          second_moment[i] = v;
          value[i] = factors.kept * value[i] -
                     factors.step_size * m / (std::sqrt(v) * factors.deviation_scale + factors.epsilon);
        }
        for (std::int64_t i = 0; copies != nullptr && i < count; ++i) {
          copies[begin + i] = kernels::narrow<BFloat16>(value[i]);
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
