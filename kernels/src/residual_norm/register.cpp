#include "support/factories.hpp"

namespace heddle {

void add_residual_norm_kernels(KernelRegistries& registries) {
  registries.of<ResidualNorm>().add("reference", speeds::reference, make_reference_residual_norm());
}

}  // namespace heddle
