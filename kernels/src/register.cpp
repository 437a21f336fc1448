#include <heddle/core/base/operation_names.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/kernels/register.hpp>

#include "level/compiled.hpp"
#include "support/factories.hpp"

namespace heddle {

// Each is defined in its operation's reference.cpp; level/compiled.hpp adds the implementations that are compiled for
// each instruction set.
#define HEDDLE_DECLARE(name) void add_##name##_kernels(KernelRegistries& registries);
HEDDLE_OPERATIONS(HEDDLE_DECLARE)
#undef HEDDLE_DECLARE
// HEDDLE_TEAM_OPERATIONS is EACH(name) for every operation `name` that has a file name/teams.cpp (CMakeLists.txt).
#define EACH(name) void add_team_##name##_kernels(KernelRegistries& registries);
HEDDLE_TEAM_OPERATIONS
#undef EACH

void register_built_in_kernels(KernelRegistries& registries, CpuLevel level) {
#define HEDDLE_ADD(name) add_##name##_kernels(registries);
  HEDDLE_OPERATIONS(HEDDLE_ADD)
#undef HEDDLE_ADD
#define EACH(name) add_team_##name##_kernels(registries);
  HEDDLE_TEAM_OPERATIONS
#undef EACH
  add_compiled_kernels(registries, level);
  add_onednn_gemm(registries.of<Gemm>(), level);
  add_avx512_gemm(registries.of<Gemm>(), level);
}

std::string describe_instruction_sets(CpuLevel level) {
  return describe_compiled_kernels(level);
}

}  // namespace heddle
