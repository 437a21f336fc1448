#include "support/factories.hpp"

namespace heddle {

void add_attention_kernels(KernelRegistries& registries) {
  registries.of<Attention>().add("reference", speeds::reference, make_reference_attention());
}

}  // namespace heddle
