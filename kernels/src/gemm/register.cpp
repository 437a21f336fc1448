#include "support/factories.hpp"

namespace heddle {

void add_gemm_kernels(KernelRegistries& registries) {
  KernelRegistry<Gemm>& registry = registries.of<Gemm>();
  registry.add("reference", speeds::reference, make_reference_gemm());
  registry.add("kokkos", speeds::portable, make_kokkos_gemm());
  registry.add("onednn", speeds::vendor, make_onednn_gemm());
  add_avx512_gemm(registry);
}

}  // namespace heddle
