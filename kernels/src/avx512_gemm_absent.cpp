#include "avx512_gemm_tiles.hpp"

/// In place of the tiles where the compiler can not make code for AVX-512.
namespace heddle::avx512 {

Tiles const* float32_tiles() {
  return nullptr;
}

Tiles const* bfloat16_tiles() {
  return nullptr;
}

bool cpu_has_matrix_registers() {
  return false;
}

}  // namespace heddle::avx512
