#include "support/factories.hpp"

namespace heddle {

void add_softmax_cross_entropy_kernels(KernelRegistries& registries) {
  registries.of<SoftmaxCrossEntropy>().add("reference", speeds::reference, make_reference_softmax_cross_entropy());
}

}  // namespace heddle
