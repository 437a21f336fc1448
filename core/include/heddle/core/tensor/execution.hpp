#pragma once

#include <Kokkos_Core.hpp>
#include <heddle/core/tensor/arena.hpp>

namespace heddle {

/// The execution-space instance and the scratch memory that kernels run with. This header includes Kokkos: only
/// kernels include it; other code uses the forward declaration `struct Execution`.
struct Execution {
  Kokkos::DefaultExecutionSpace space;
  /// Scratch of one kernel call: use it inside an ArenaScope.
  Arena& scratch;
};

}  // namespace heddle
