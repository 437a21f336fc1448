#include "factories.hpp"

namespace heddle {

/// Replaces gemm/avx512 and gemm/amx if the compiler cannot make code for AVX-512 or Kokkos computes on a device.
void add_avx512_gemm(KernelRegistry<Gemm>&, CpuLevel) {}
void add_amx_gemm(KernelRegistry<Gemm>&, CpuLevel) {}

}  // namespace heddle
