#include <Kokkos_Core.hpp>
#include <heddle/core/kernel_registry.hpp>
#include <heddle/kernels/register.hpp>

#include "avx512_gemm_tiles.hpp"
#include "factories.hpp"

namespace heddle {

namespace {

// What `auto` goes by: the fastest supporting implementation wins.
constexpr int reference_speed = 0;
constexpr int portable_speed = 10;
constexpr int simd_speed = 15;
constexpr int vendor_speed = 20;
/// Made here, and faster than the vendor's where the CPU has no matrix registers.
constexpr int own_speed = 25;

/// Whether tensors lie where host code can read them.
constexpr bool on_host =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, Kokkos::DefaultExecutionSpace::memory_space>::accessible;

}  // namespace

void register_built_in_kernels(KernelRegistries& registries) {
  auto const add = [](auto& registry, auto reference, auto portable) {
    registry.add("reference", reference_speed, std::move(reference));
    registry.add("kokkos", portable_speed, std::move(portable));
  };
  add(registries.gemm, make_reference_gemm(), make_kokkos_gemm());
  registries.gemm.add("onednn", vendor_speed, make_onednn_gemm());
  registries.gemm.add("avx512", avx512::cpu_has_matrix_registers() ? simd_speed : own_speed, make_avx512_gemm());
  add(registries.attention, make_reference_attention(), make_kokkos_attention());
  add(registries.residual_norm, make_reference_residual_norm(), make_kokkos_residual_norm());
  add(registries.activation, make_reference_activation(), make_kokkos_activation());
  add(registries.softmax_cross_entropy, make_reference_softmax_cross_entropy(), make_kokkos_softmax_cross_entropy());
  add(registries.embedding, make_reference_embedding(), make_kokkos_embedding());
  add(registries.adam, make_reference_adam(), make_kokkos_adam());
  add(registries.tensor_ops, make_reference_tensor_ops(), make_kokkos_tensor_ops());
  if constexpr (on_host) {
    registries.attention.add("simd", simd_speed, make_simd_attention());
    registries.residual_norm.add("simd", simd_speed, make_simd_residual_norm());
    registries.softmax_cross_entropy.add("simd", simd_speed, make_simd_softmax_cross_entropy());
  }
}

}  // namespace heddle
