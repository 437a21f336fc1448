#include "simd_activation.hpp"

namespace heddle {

void add_simd_float32_activation_kernels(KernelRegistries& registries) {
  simd_activation::add_simd_activation<float>(registries);
}

}  // namespace heddle
