#include "factories.hpp"

namespace heddle {

void add_simd_kernels(KernelRegistries& registries) {
  registries.of<Attention>().add("simd", speeds::simd, make_simd_attention());
  registries.of<ResidualNorm>().add("simd", speeds::simd, make_simd_residual_norm());
  registries.of<SoftmaxCrossEntropy>().add("simd", speeds::simd, make_simd_softmax_cross_entropy());
}

}  // namespace heddle
