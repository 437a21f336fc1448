#include "support/factories.hpp"

namespace heddle {

void add_embedding_kernels(KernelRegistries& registries) {
  registries.of<Embedding>().add("reference", speeds::reference, make_reference_embedding());
}

}  // namespace heddle
