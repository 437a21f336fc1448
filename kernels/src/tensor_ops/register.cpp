#include "support/factories.hpp"

namespace heddle {

void add_tensor_ops_kernels(KernelRegistries& registries) {
  KernelRegistry<TensorOps>& registry = registries.of<TensorOps>();
  registry.add("reference", speeds::reference, make_reference_tensor_ops());
  registry.add("kokkos", speeds::portable, make_kokkos_tensor_ops());
}

}  // namespace heddle
