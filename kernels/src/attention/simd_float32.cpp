#include "simd_attention.hpp"

namespace heddle {

void add_simd_float32_attention_kernels(KernelRegistries& registries) {
  simd_attention::add_simd_attention<float>(registries);
}

}  // namespace heddle
