#include "rule.hpp"
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
  kernels::AdamSettings const settings(call);
  std::int64_t const size = call.value.size();
  kernels::for_each(
      execution, "heddle::adam", (size + block - 1) / block, KOKKOS_LAMBDA(std::int64_t item) {
        auto const factors = settings.template factors<Real>();
        std::int64_t const begin = item * block;
        std::int64_t const count = size - begin < block ? size - begin : block;
        Real* const KOKKOS_RESTRICT value = values + begin;
        Real const* const KOKKOS_RESTRICT gradient = gradients + begin;
        Real* const KOKKOS_RESTRICT first_moment = first_moments + begin;
        Real* const KOKKOS_RESTRICT second_moment = second_moments + begin;
        for (std::int64_t i = 0; i < count; ++i) {
          factors.update(value[i], gradient[i], first_moment[i], second_moment[i]);
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
