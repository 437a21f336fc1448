#include "support/factories.hpp"

namespace heddle {

void add_adam_kernels(KernelRegistries& registries) {
  KernelRegistry<Adam>& registry = registries.of<Adam>();
  registry.add("reference", speeds::reference, make_reference_adam());
  registry.add("kokkos", speeds::portable, make_kokkos_adam());
}

}  // namespace heddle
