#include "support/factories.hpp"

namespace heddle {

void add_gemm_kernels(KernelRegistries& registries) {
  registries.of<Gemm>().add("reference", speeds::reference, make_reference_gemm());
}

}  // namespace heddle
