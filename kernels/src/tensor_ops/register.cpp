#include "support/factories.hpp"

namespace heddle {

void add_tensor_ops_kernels(KernelRegistries& registries) {
  registries.of<TensorOps>().add("reference", speeds::reference, make_reference_tensor_ops());
}

}  // namespace heddle
