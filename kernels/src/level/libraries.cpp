#include <fmt/format.h>

#if defined(__aarch64__)
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <heddle/core/base/library.hpp>
#include <string_view>

#include "compiled.hpp"

// The build has a shared library for each instruction set (or some: HEDDLE_CPU_LEVELS names the levels), in the
// directory of the core library. Each keeps all of its inline functions to itself, so that code for a newer processor
// is never used where an older one is required.

namespace heddle {

namespace {

using Register = void(KernelRegistries&);

/// The highest level, `level` or a lower one, that the build has kernels of.
CpuLevel compiled_level(CpuLevel level) {
  constexpr std::string_view compiled = " " HEDDLE_CPU_LEVELS " ";
  while (compiled.find(fmt::format(" {} ", name_of(level))) == std::string_view::npos) {
    level = cpu_levels.at(static_cast<std::size_t>(level) - 1);
  }
  return level;
}

// The libraries' levels. AVX-512's bfloat16 instructions are used by `simd` in bfloat16 only; the library with those
// has the code for matrix registers, too.
CpuLevel portable_level(CpuLevel level) {
  return std::min(compiled_level(level), CpuLevel::v4);
}
/// `simd` needs 64-byte registers; processors with shorter ones than AVX-512's use `kokkos`.
bool has_vector_kernels(CpuLevel level) {
  return compiled_level(level) >= CpuLevel::v4;
}
CpuLevel bfloat16_level(CpuLevel level) {
  return std::min(compiled_level(level), CpuLevel::v4_bf16);
}

/// The function of that name in the library for `level`.
Register* find(CpuLevel level, char const* name) {
  return reinterpret_cast<Register*>(
      function_beside_core(fmt::format("libheddle_kernels_{}.so", name_of(level)), name));
}

/// " of 256 bits" where kernels use registers of any length: another length adds in another order.
std::string register_length([[maybe_unused]] CpuLevel level) {
#if defined(__aarch64__)
  if (level >= CpuLevel::v3) {
    constexpr int bits = 8;
    int const length = prctl(PR_SVE_GET_VL);
    return length > 0 ? fmt::format(" of {} bits", bits * (length & PR_SVE_VL_LEN_MASK)) : "";
  }
#endif
  return "";
}

}  // namespace

void add_compiled_kernels(KernelRegistries& registries, CpuLevel level) {
  find(portable_level(level), "heddle_add_portable_kernels")(registries);
  heddle_add_portable_kernels(registries);  // of float64, which this program has for all levels
  if (has_vector_kernels(level)) {
    find(CpuLevel::v4, "heddle_add_simd_float32_kernels")(registries);
    find(bfloat16_level(level), "heddle_add_simd_bfloat16_kernels")(registries);
  }
  if (compiled_level(level) >= CpuLevel::v4_amx) {
    find(bfloat16_level(level), "heddle_add_amx_kernels")(registries);
  }
}

std::string describe_compiled_kernels(CpuLevel level) {
  CpuLevel const kokkos = portable_level(level);
  std::string const portable = fmt::format("{} (kokkos {}{}", name_of(level), name_of(kokkos), register_length(kokkos));
  return portable + (has_vector_kernels(level) ? fmt::format(", simd {})", name_of(bfloat16_level(level))) : ")");
}

}  // namespace heddle
