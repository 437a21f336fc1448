#pragma once

#include <heddle/core/base/cpu_level.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/embedding.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/operations/token_ranking.hpp>

namespace heddle {

/// The element types for which a `kokkos` that is registered in parts is compiled in this library: float64, which no
/// training run uses, is compiled for one instruction set only.
#ifdef HEDDLE_ELEMENT_TYPES
using CompiledTypes = kernels::ElementTypes<HEDDLE_ELEMENT_TYPES>;
#else
using CompiledTypes = kernels::FloatingTypes;
#endif

/// Speeds from which `auto` chooses: the fastest supporting implementation is selected.
namespace priorities {

constexpr int reference = 0;
/// The speed of kernels whose rows are computed by teams of threads: the fastest on a device, and slower than loops on
/// the host.
inline int teams() {
  return kernel_memory_space() == MemorySpace::device ? 18 : 5;
}
constexpr int portable = 10;
constexpr int simd = 15;
constexpr int vendor = 20;
/// Heddle's own, faster than the vendor's on CPUs without matrix registers.
constexpr int own = 25;

}  // namespace priorities

/// Adds `onednn`, limited to `level`.
void add_onednn_gemm(KernelRegistry<Gemm>& registry, CpuLevel level);
/// Adds `avx512` if `level` includes AVX-512 and the build has the code for it.
void add_avx512_gemm(KernelRegistry<Gemm>& registry, CpuLevel level);
/// Adds `int8` with the instructions of `level` where kernels compute in the host's memory.
void add_int8_gemm(KernelRegistry<Gemm>& registry, CpuLevel level);
/// Adds `amx`, which needs `onednn`, if `level` includes matrix registers and the build has the code for them.
void add_amx_gemm(KernelRegistry<Gemm>& registry, CpuLevel level);

}  // namespace heddle
