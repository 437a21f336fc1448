#include "compiled.hpp"
#include "support/factories.hpp"

void heddle_add_vector_kernels(heddle::KernelRegistries& registries) {
  heddle::add_simd_kernels(registries);
}
