#pragma once

#include <array>
#include <string_view>

namespace heddle {

/// The instruction sets between which kernels choose; each includes all those before it. `baseline`, which the rest of
/// Heddle is compiled for, is x86-64-v2 on x86 (SSE4.2). v3 adds AVX2 and FMA; v4 adds AVX-512 F, BW, CD, DQ and VL;
/// v4_bf16 adds AVX-512 BF16 and VNNI; v4_amx adds the matrix registers' products of bfloat16 and int8. On AArch64
/// `baseline` is Armv8-A (NEON), v3 adds SVE, with registers of any length, and no processor has a higher level.
enum class CpuLevel { baseline, v3, v4, v4_bf16, v4_amx };

inline constexpr std::array cpu_levels{CpuLevel::baseline, CpuLevel::v3, CpuLevel::v4, CpuLevel::v4_bf16,
                                       CpuLevel::v4_amx};

/// The level's name: "x86-64-v2", …, "x86-64-v4-bf16", "x86-64-v4-amx"; on AArch64 "armv8-a", "armv8.2-a-sve"; on other
/// processors "baseline".
std::string_view name_of(CpuLevel level);

/// Throws ConfigError where no level has that name; the message starts with `origin`, the place of the name.
CpuLevel parse_cpu_level(std::string_view name, std::string_view origin);

/// The highest level that this processor and its operating system can run.
CpuLevel detected_cpu_level();

/// The level that this process uses: the detected one, or a lower one named by the environment variable
/// HEDDLE_CPU_LEVEL. Throws ConfigError if that names no level, or one that this processor does not support.
CpuLevel usable_cpu_level();

}  // namespace heddle
