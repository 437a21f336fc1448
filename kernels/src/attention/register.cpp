#include "support/factories.hpp"

namespace heddle {

void add_attention_kernels(KernelRegistries& registries) {
  KernelRegistry<Attention>& registry = registries.of<Attention>();
  registry.add("reference", speeds::reference, make_reference_attention());
  registry.add("kokkos", speeds::portable, make_kokkos_attention());
}

}  // namespace heddle
