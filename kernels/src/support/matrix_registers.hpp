#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace heddle {

/// Asks Linux for the data of the matrix registers (AMX), which a process gets only on request; false where there are
/// none. For x86-64.
inline bool request_matrix_registers() {
  constexpr long request = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;    // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request, tile_data) == 0;
}

}  // namespace heddle
