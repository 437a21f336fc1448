#pragma once

#include <Kokkos_Core.hpp>
#include <heddle/core/tensor/arena.hpp>

namespace heddle {

/// Where kernels run: an execution-space instance and scratch memory. Heavy header: only kernels include it; everybody
/// else needs the forward declaration `struct Execution`.
struct Execution {
  Kokkos::DefaultExecutionSpace space;
  /// Scratch of one kernel call: take it under an ArenaScope.
  Arena& scratch;
};

}  // namespace heddle
