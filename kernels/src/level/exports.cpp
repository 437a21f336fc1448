#include "compiled.hpp"

// HEDDLE_KOKKOS_OPERATIONS is EACH(name) for every operation `name` of which this library has the file name/kokkos.cpp,
// which defines the function below; HEDDLE_SIMD_FLOAT32_OPERATIONS and HEDDLE_SIMD_BFLOAT16_OPERATIONS are lists of
// those with simd_float32.cpp and simd_bfloat16.cpp, HEDDLE_AMX_OPERATIONS of those with amx.cpp, HEDDLE_UPDATE_RULES
// one of the files in update/ (CMakeLists.txt). A list may be empty.

namespace heddle {

#define EACH(name) void add_portable_##name##_kernels(KernelRegistries& registries);
HEDDLE_KOKKOS_OPERATIONS
#undef EACH
#define EACH(name) void add_##name##_rule(KernelRegistries& registries);
HEDDLE_UPDATE_RULES
#undef EACH
#define EACH(name) void add_simd_float32_##name##_kernels(KernelRegistries& registries);
HEDDLE_SIMD_FLOAT32_OPERATIONS
#undef EACH
#define EACH(name) void add_simd_bfloat16_##name##_kernels(KernelRegistries& registries);
HEDDLE_SIMD_BFLOAT16_OPERATIONS
#undef EACH
#define EACH(name) void add_amx_##name##_kernels(KernelRegistries& registries);
HEDDLE_AMX_OPERATIONS
#undef EACH

}  // namespace heddle

void heddle_add_portable_kernels([[maybe_unused]] heddle::KernelRegistries& registries) {
#define EACH(name) heddle::add_portable_##name##_kernels(registries);
  HEDDLE_KOKKOS_OPERATIONS
#undef EACH
#define EACH(name) heddle::add_##name##_rule(registries);
  HEDDLE_UPDATE_RULES
#undef EACH
}

void heddle_add_simd_float32_kernels([[maybe_unused]] heddle::KernelRegistries& registries) {
#define EACH(name) heddle::add_simd_float32_##name##_kernels(registries);
  HEDDLE_SIMD_FLOAT32_OPERATIONS
#undef EACH
}

void heddle_add_simd_bfloat16_kernels([[maybe_unused]] heddle::KernelRegistries& registries) {
#define EACH(name) heddle::add_simd_bfloat16_##name##_kernels(registries);
  HEDDLE_SIMD_BFLOAT16_OPERATIONS
#undef EACH
}

void heddle_add_amx_kernels([[maybe_unused]] heddle::KernelRegistries& registries) {
#define EACH(name) heddle::add_amx_##name##_kernels(registries);
  HEDDLE_AMX_OPERATIONS
#undef EACH
}
