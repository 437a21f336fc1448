#include "simd_cross_entropy.hpp"

namespace heddle {

void add_simd_bfloat16_softmax_cross_entropy_kernels(KernelRegistries& registries) {
  simd_cross_entropy::add_simd_softmax_cross_entropy<BFloat16>(registries);
}

}  // namespace heddle
