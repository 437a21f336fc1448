#include "quantised_gemm/int8_choice.hpp"

namespace heddle::int8 {

/// Replaces the int8_x86 files if the compiler cannot make code for them.
Functions const& functions_for(CpuLevel) {
  return portable_functions;
}

}  // namespace heddle::int8
