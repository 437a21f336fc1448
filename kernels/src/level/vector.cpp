#include "compiled.hpp"

// HEDDLE_VECTOR_OPERATIONS is EACH(name) for every operation `name` that has a file name/simd.cpp (CMakeLists.txt),
// which defines this function; none where Kokkos computes on a device.

namespace heddle {

#define EACH(name) void add_vector_##name##_kernels(KernelRegistries& registries);
HEDDLE_VECTOR_OPERATIONS
#undef EACH

}  // namespace heddle

void heddle_add_vector_kernels([[maybe_unused]] heddle::KernelRegistries& registries) {
#define EACH(name) heddle::add_vector_##name##_kernels(registries);
  HEDDLE_VECTOR_OPERATIONS
#undef EACH
}
