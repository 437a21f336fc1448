#include <heddle/core/base/operation_names.hpp>

#include "compiled.hpp"

namespace heddle {

// Each of these is defined in the file kokkos.cpp of its operation.
#define HEDDLE_DECLARE(name) void add_portable_##name##_kernels(KernelRegistries& registries);
HEDDLE_OPERATIONS(HEDDLE_DECLARE)
#undef HEDDLE_DECLARE

}  // namespace heddle

void heddle_add_portable_kernels(heddle::KernelRegistries& registries) {
#define HEDDLE_ADD(name) heddle::add_portable_##name##_kernels(registries);
  HEDDLE_OPERATIONS(HEDDLE_ADD)
#undef HEDDLE_ADD
}
