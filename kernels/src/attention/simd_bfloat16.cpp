#include "simd_attention.hpp"

namespace heddle {

void add_simd_bfloat16_attention_kernels(KernelRegistries& registries) {
  simd_attention::add_simd_attention<BFloat16>(registries);
}

}  // namespace heddle
