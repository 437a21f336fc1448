#include "support/factories.hpp"

namespace heddle {

void add_embedding_kernels(KernelRegistries& registries) {
  KernelRegistry<Embedding>& registry = registries.of<Embedding>();
  registry.add("reference", speeds::reference, make_reference_embedding());
  registry.add("kokkos", speeds::portable, make_kokkos_embedding());
}

}  // namespace heddle
