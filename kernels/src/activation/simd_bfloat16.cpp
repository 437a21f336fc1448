#include "simd_activation.hpp"

namespace heddle {

void add_simd_bfloat16_activation_kernels(KernelRegistries& registries) {
  simd_activation::add_simd_activation<BFloat16>(registries);
}

}  // namespace heddle
