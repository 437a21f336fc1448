#include <heddle/core/operations/registry.hpp>
#include <heddle/kernels/register.hpp>

#include "support/factories.hpp"

namespace heddle {

void register_built_in_kernels(KernelRegistries& registries) {
  auto const add = [](auto& registry, auto reference, auto portable) {
    registry.add("reference", speeds::reference, std::move(reference));
    registry.add("kokkos", speeds::portable, std::move(portable));
  };
  add(registries.gemm, make_reference_gemm(), make_kokkos_gemm());
  registries.gemm.add("onednn", speeds::vendor, make_onednn_gemm());
  add_avx512_gemm(registries.gemm);
  add(registries.attention, make_reference_attention(), make_kokkos_attention());
  add(registries.residual_norm, make_reference_residual_norm(), make_kokkos_residual_norm());
  add(registries.activation, make_reference_activation(), make_kokkos_activation());
  add(registries.softmax_cross_entropy, make_reference_softmax_cross_entropy(), make_kokkos_softmax_cross_entropy());
  add(registries.embedding, make_reference_embedding(), make_kokkos_embedding());
  add(registries.adam, make_reference_adam(), make_kokkos_adam());
  add(registries.tensor_ops, make_reference_tensor_ops(), make_kokkos_tensor_ops());
  add_simd_kernels(registries);
}

}  // namespace heddle
