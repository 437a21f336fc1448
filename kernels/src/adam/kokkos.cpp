#include "rule.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

/// Elements per work item.
constexpr std::int64_t block = 4096;

struct KokkosAdam {
  template <class Real>
  static void update(Execution& execution, AdamCall const& call) {
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
};

}  // namespace

void add_portable_adam_kernels(KernelRegistries& registries) {
  registries.of<Adam>().add("kokkos", speeds::portable, std::make_shared<AdamFrontEnd<KokkosAdam>>());
}

}  // namespace heddle
