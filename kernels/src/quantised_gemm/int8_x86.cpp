#include <sys/syscall.h>
#include <unistd.h>

#include "int8_choice.hpp"

namespace heddle::int8 {

namespace {

/// Asks Linux for the matrix registers' data, which a process gets only on request.
bool may_use_matrix_registers() {
  constexpr long request_state = 0x1023;
  constexpr long tile_data = 18;
  return syscall(SYS_arch_prctl, request_state, tile_data) == 0;
}

}  // namespace

Functions const& functions_for(CpuLevel level) {
  if (level >= CpuLevel::v4_amx && may_use_matrix_registers()) {
    return amx_functions;
  }
  return level >= CpuLevel::v4_bf16 ? vnni_functions : level >= CpuLevel::v3 ? avx2_functions : portable_functions;
}

}  // namespace heddle::int8
