#include "compiled.hpp"

// HEDDLE_PORTABLE_OPERATIONS is EACH(name) for every operation `name` that has a file name/kokkos.cpp (CMakeLists.txt),
// which defines this function.

namespace heddle {

#define EACH(name) void add_portable_##name##_kernels(KernelRegistries& registries);
HEDDLE_PORTABLE_OPERATIONS
#undef EACH

}  // namespace heddle

void heddle_add_portable_kernels(heddle::KernelRegistries& registries) {
#define EACH(name) heddle::add_portable_##name##_kernels(registries);
  HEDDLE_PORTABLE_OPERATIONS
#undef EACH
}
