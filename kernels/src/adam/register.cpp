#include "support/factories.hpp"

namespace heddle {

void add_adam_kernels(KernelRegistries& registries) {
  registries.of<Adam>().add("reference", speeds::reference, make_reference_adam());
}

}  // namespace heddle
