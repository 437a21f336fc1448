#pragma once

#include <heddle/core/base/cpu_level.hpp>
#include <heddle/core/operations/registry.hpp>
#include <string>

namespace heddle {

/// Adds the implementations that are compiled once for each instruction set, `kokkos` and `simd`, for the highest
/// one that `level` includes. Throws ConfigError where their library is missing.
void add_compiled_kernels(KernelRegistries& registries, CpuLevel level);

/// The level and the instruction sets of the two: "x86-64-v4-amx (kokkos x86-64-v4, simd x86-64-v4-bf16)".
std::string describe_compiled_kernels(CpuLevel level);

}  // namespace heddle

// The only functions that a library of compiled kernels exports; one that it has no kernels for does nothing. `simd`
// uses `kokkos` and `amx` uses `simd`, which must be added before. They are linked directly where there is one
// instruction set only.
extern "C" void heddle_add_portable_kernels(heddle::KernelRegistries& registries);
extern "C" void heddle_add_simd_float32_kernels(heddle::KernelRegistries& registries);
extern "C" void heddle_add_simd_bfloat16_kernels(heddle::KernelRegistries& registries);
extern "C" void heddle_add_amx_kernels(heddle::KernelRegistries& registries);
