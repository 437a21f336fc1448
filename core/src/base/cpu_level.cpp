#include <fmt/format.h>

#include <cstdlib>
#include <heddle/core/base/cpu_level.hpp>
#include <heddle/core/base/error.hpp>

#if defined(__x86_64__)
#include "cpu_features.hpp"
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace heddle {

namespace {

#if defined(__x86_64__)
constexpr std::array<std::string_view, cpu_levels.size()> names{"x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16",
                                                                "x86-64-v4-amx"};
constexpr std::uint64_t level_v4_bf16 = cpu::level_v4 | cpu::avx512bf16 | cpu::avx512vnni;
/// Features that each level above the baseline needs.
constexpr std::array<std::uint64_t, names.size()> needs{0, cpu::level_v3, cpu::level_v4, level_v4_bf16,
                                                        level_v4_bf16 | cpu::amx_tile | cpu::amx_bf16 | cpu::amx_int8};
std::uint64_t detected_features() {
  return cpu::detected_features();
}
#elif defined(__aarch64__)
constexpr std::array<std::string_view, 2> names{"armv8-a", "armv8.2-a-sve"};
constexpr std::array<std::uint64_t, names.size()> needs{0, HWCAP_SVE};
std::uint64_t detected_features() {
  return getauxval(AT_HWCAP);
}
#else
constexpr std::array<std::string_view, 1> names{"baseline"};
constexpr std::array<std::uint64_t, names.size()> needs{0};
std::uint64_t detected_features() {
  return 0;
}
#endif

}  // namespace

std::string_view name_of(CpuLevel level) {
  return names.at(static_cast<std::size_t>(level));
}

CpuLevel parse_cpu_level(std::string_view name, std::string_view origin) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) {
      return cpu_levels[i];
    }
  }
  throw ConfigError("{} is \"{}\"; expected one of: {}", origin, name, fmt::join(names, ", "));
}

CpuLevel detected_cpu_level() {
  static CpuLevel const detected = [] {
    std::uint64_t const features = detected_features();
    CpuLevel highest = CpuLevel::baseline;
    for (std::size_t i = 1; i < names.size() && (features & needs[i]) == needs[i]; ++i) {
      highest = cpu_levels[i];
    }
    return highest;
  }();
  return detected;
}

CpuLevel usable_cpu_level() {
  char const* const wanted = std::getenv("HEDDLE_CPU_LEVEL");
  CpuLevel const detected = detected_cpu_level();
  if (wanted == nullptr || *wanted == '\0') {
    return detected;
  }
  CpuLevel const level = parse_cpu_level(wanted, "HEDDLE_CPU_LEVEL");
  if (level > detected) {
    throw ConfigError("HEDDLE_CPU_LEVEL is {}, but this processor has only {}", wanted, name_of(detected));
  }
  return level;
}

}  // namespace heddle
