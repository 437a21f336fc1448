#include "support/factories.hpp"

namespace heddle {

void add_activation_kernels(KernelRegistries& registries) {
  registries.of<Activation>().add("reference", speeds::reference, make_reference_activation());
}

}  // namespace heddle
