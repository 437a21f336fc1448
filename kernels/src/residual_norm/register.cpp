#include "support/factories.hpp"

namespace heddle {

void add_residual_norm_kernels(KernelRegistries& registries) {
  KernelRegistry<ResidualNorm>& registry = registries.of<ResidualNorm>();
  registry.add("reference", speeds::reference, make_reference_residual_norm());
  registry.add("kokkos", speeds::portable, make_kokkos_residual_norm());
}

}  // namespace heddle
