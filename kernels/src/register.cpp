#include <heddle/core/base/operation_names.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/kernels/register.hpp>

#include "support/factories.hpp"

namespace heddle {

// Each is in the folder of its operation.
#define HEDDLE_DECLARE(name) void add_##name##_kernels(KernelRegistries& registries);
HEDDLE_OPERATIONS(HEDDLE_DECLARE)
#undef HEDDLE_DECLARE

void register_built_in_kernels(KernelRegistries& registries) {
#define HEDDLE_ADD(name) add_##name##_kernels(registries);
  HEDDLE_OPERATIONS(HEDDLE_ADD)
#undef HEDDLE_ADD
  add_simd_kernels(registries);
}

}  // namespace heddle
