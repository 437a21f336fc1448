#include <heddle/core/operations/registry.hpp>
#include <heddle/kernels/register.hpp>

#include "level/compiled.hpp"
#include "support/factories.hpp"

namespace heddle {

// HEDDLE_REFERENCE_OPERATIONS is EACH(name) for every operation `name` that has a file name/reference.cpp
// (CMakeLists.txt), HEDDLE_TEAMS_OPERATIONS for every one with a name/teams.cpp. level/compiled.hpp adds the
// implementations that are compiled for each instruction set.
#define EACH(name) void add_##name##_kernels(KernelRegistries& registries);
HEDDLE_REFERENCE_OPERATIONS
#undef EACH
#define EACH(name) void add_team_##name##_kernels(KernelRegistries& registries);
HEDDLE_TEAMS_OPERATIONS
#undef EACH

void register_built_in_kernels(KernelRegistries& registries, CpuLevel level) {
#define EACH(name) add_##name##_kernels(registries);
  HEDDLE_REFERENCE_OPERATIONS
#undef EACH
#define EACH(name) add_team_##name##_kernels(registries);
  HEDDLE_TEAMS_OPERATIONS
#undef EACH
  add_compiled_kernels(registries, level);
  add_onednn_gemm(registries.of<Gemm>(), level);
  add_avx512_gemm(registries.of<Gemm>(), level);
  add_amx_gemm(registries.of<Gemm>(), level);
  add_int8_gemm(registries.of<Gemm>(), level);  // last: computes gradients by the others
}

std::string describe_instruction_sets(CpuLevel level) {
  return describe_compiled_kernels(level);
}

}  // namespace heddle
