#include "factories.hpp"

namespace heddle {

/// Replaces the other avx512_ files if the compiler cannot make code for AVX-512 or Kokkos computes on a device.
void add_avx512_gemm(KernelRegistry<Gemm>&, CpuLevel) {}
void add_amx_gemm(KernelRegistry<Gemm>&, CpuLevel) {}

}  // namespace heddle
