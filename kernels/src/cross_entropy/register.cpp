#include "support/factories.hpp"

namespace heddle {

void add_softmax_cross_entropy_kernels(KernelRegistries& registries) {
  KernelRegistry<SoftmaxCrossEntropy>& registry = registries.of<SoftmaxCrossEntropy>();
  registry.add("reference", speeds::reference, make_reference_softmax_cross_entropy());
  registry.add("kokkos", speeds::portable, make_kokkos_softmax_cross_entropy());
}

}  // namespace heddle
