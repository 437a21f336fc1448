#include <fmt/format.h>

#include "compiled.hpp"

// This build has one instruction set: these kernels are part of the program.

namespace heddle {

void add_compiled_kernels(KernelRegistries& registries, CpuLevel level) {
  heddle_add_portable_kernels(registries);
  heddle_add_simd_float32_kernels(registries);
  heddle_add_simd_bfloat16_kernels(registries);
  if (level >= CpuLevel::v4_amx) {
    heddle_add_amx_kernels(registries);
  }
}

std::string describe_compiled_kernels(CpuLevel level) {
  return fmt::format("{} (kokkos and simd {})", name_of(level), HEDDLE_INSTRUCTION_SET);
}

}  // namespace heddle
