#pragma once

#include <cstdint>

/// The processor's features as bits of one word. A file that is compiled for the oldest processors includes this
/// header, so it has plain declarations and constants only.
namespace heddle::cpu {

enum Feature : std::uint64_t {
  sse3 = 1U << 0,
  ssse3 = 1U << 1,
  sse4_1 = 1U << 2,
  sse4_2 = 1U << 3,
  popcnt = 1U << 4,
  avx = 1U << 5,
  avx2 = 1U << 6,
  fma = 1U << 7,
  f16c = 1U << 8,
  bmi = 1U << 9,
  bmi2 = 1U << 10,
  lzcnt = 1U << 11,
  movbe = 1U << 12,
  avx512f = 1U << 13,
  avx512bw = 1U << 14,
  avx512cd = 1U << 15,
  avx512dq = 1U << 16,
  avx512vl = 1U << 17,
  avx512vbmi = 1U << 18,
  avx512vbmi2 = 1U << 19,
  avx512vnni = 1U << 20,
  avx512bf16 = 1U << 21,
  amx_tile = 1U << 22,
  amx_bf16 = 1U << 23,
};

constexpr std::uint64_t level_v2 = sse3 | ssse3 | sse4_1 | sse4_2 | popcnt;
constexpr std::uint64_t level_v3 = level_v2 | avx | avx2 | fma | f16c | bmi | bmi2 | lzcnt | movbe;
constexpr std::uint64_t level_v4 = level_v3 | avx512f | avx512bw | avx512cd | avx512dq | avx512vl;

/// The features of this processor that the operating system lets programs use; 0 on other processors than x86.
std::uint64_t detected_features();

/// The features that the compiler was allowed to use in core: a constant without code.
extern std::uint64_t const compiled_features;

}  // namespace heddle::cpu
