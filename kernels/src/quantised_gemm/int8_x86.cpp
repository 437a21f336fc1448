#include "int8_choice.hpp"
#include "support/matrix_registers.hpp"

namespace heddle::int8 {

Functions const& functions_for(CpuLevel level) {
  if (level >= CpuLevel::v4_amx && request_matrix_registers()) {
    return amx_functions;
  }
  return level >= CpuLevel::v4_bf16 ? vnni_functions : level >= CpuLevel::v3 ? avx2_functions : portable_functions;
}

}  // namespace heddle::int8
