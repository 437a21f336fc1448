#include "support/factories.hpp"

namespace heddle {

void add_activation_kernels(KernelRegistries& registries) {
  KernelRegistry<Activation>& registry = registries.of<Activation>();
  registry.add("reference", speeds::reference, make_reference_activation());
  registry.add("kokkos", speeds::portable, make_kokkos_activation());
}

}  // namespace heddle
