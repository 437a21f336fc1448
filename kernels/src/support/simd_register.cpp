#include "factories.hpp"

namespace heddle {

void add_simd_kernels(KernelRegistries& registries) {
  registries.attention.add("simd", speeds::simd, make_simd_attention());
  registries.residual_norm.add("simd", speeds::simd, make_simd_residual_norm());
  registries.softmax_cross_entropy.add("simd", speeds::simd, make_simd_softmax_cross_entropy());
}

}  // namespace heddle
