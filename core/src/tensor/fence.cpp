#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/tensor/fence.hpp>

namespace heddle {

void fence(Execution const* execution) {
  if (execution != nullptr) {
    execution->space.fence();
  } else {
    Kokkos::fence();
  }
}

}  // namespace heddle
