#pragma once

#include <cstdint>

/// The processor's features as bits of one word. A file that is compiled for the oldest processors includes this
/// header, so it has plain declarations and constants only.
namespace heddle::cpu {

/// All features: name, name for people, the macro that a compiler defines as 1 if it may use the feature, and the place
/// of its bit in CPUID's answer: leaf, register, bit, and the state that the operating system must save for it.
#define HEDDLE_CPU_FEATURES(EACH)                                                             \
  EACH(sse3, "SSE3", __SSE3__, basic_leaf, ecx, 0, 0)                                         \
  EACH(ssse3, "SSSE3", __SSSE3__, basic_leaf, ecx, 9, 0)                                      \
  EACH(sse4_1, "SSE4.1", __SSE4_1__, basic_leaf, ecx, 19, 0)                                  \
  EACH(sse4_2, "SSE4.2", __SSE4_2__, basic_leaf, ecx, 20, 0)                                  \
  EACH(popcnt, "POPCNT", __POPCNT__, basic_leaf, ecx, 23, 0)                                  \
  EACH(avx, "AVX", __AVX__, basic_leaf, ecx, 28, vectors)                                     \
  EACH(avx2, "AVX2", __AVX2__, extended_leaf, ebx, 5, vectors)                                \
  EACH(fma, "FMA", __FMA__, basic_leaf, ecx, 12, vectors)                                     \
  EACH(f16c, "F16C", __F16C__, basic_leaf, ecx, 29, vectors)                                  \
  EACH(bmi, "BMI", __BMI__, extended_leaf, ebx, 3, 0)                                         \
  EACH(bmi2, "BMI2", __BMI2__, extended_leaf, ebx, 8, 0)                                      \
  EACH(lzcnt, "LZCNT", __LZCNT__, vendor_leaf, ecx, 5, 0)                                     \
  EACH(movbe, "MOVBE", __MOVBE__, basic_leaf, ecx, 22, 0)                                     \
  EACH(avx512f, "AVX512F", __AVX512F__, extended_leaf, ebx, 16, wide_vectors)                 \
  EACH(avx512bw, "AVX512BW", __AVX512BW__, extended_leaf, ebx, 30, wide_vectors)              \
  EACH(avx512cd, "AVX512CD", __AVX512CD__, extended_leaf, ebx, 28, wide_vectors)              \
  EACH(avx512dq, "AVX512DQ", __AVX512DQ__, extended_leaf, ebx, 17, wide_vectors)              \
  EACH(avx512vl, "AVX512VL", __AVX512VL__, extended_leaf, ebx, 31, wide_vectors)              \
  EACH(avx512vbmi, "AVX512_VBMI", __AVX512VBMI__, extended_leaf, ecx, 1, wide_vectors)        \
  EACH(avx512vbmi2, "AVX512_VBMI2", __AVX512VBMI2__, extended_leaf, ecx, 6, wide_vectors)     \
  EACH(avx512vnni, "AVX512_VNNI", __AVX512VNNI__, extended_leaf, ecx, 11, wide_vectors)       \
  EACH(avx512bf16, "AVX512_BF16", __AVX512BF16__, second_extended_leaf, ebx, 5, wide_vectors) \
  EACH(amx_tile, "AMX-TILE", __AMX_TILE__, extended_leaf, edx, 24, tiles)                     \
  EACH(amx_bf16, "AMX-BF16", __AMX_BF16__, extended_leaf, edx, 22, tiles)                     \
  EACH(amx_int8, "AMX-INT8", __AMX_INT8__, extended_leaf, edx, 25, tiles)

enum Feature : std::uint64_t {
#define HEDDLE_BIT_OF(name, ...) name##_bit,
  HEDDLE_CPU_FEATURES(HEDDLE_BIT_OF)
#undef HEDDLE_BIT_OF
#define HEDDLE_FEATURE(name, ...) name = std::uint64_t{1} << name##_bit,
      HEDDLE_CPU_FEATURES(HEDDLE_FEATURE)
#undef HEDDLE_FEATURE
};

constexpr std::uint64_t level_v2 = sse3 | ssse3 | sse4_1 | sse4_2 | popcnt;
constexpr std::uint64_t level_v3 = level_v2 | avx | avx2 | fma | f16c | bmi | bmi2 | lzcnt | movbe;
constexpr std::uint64_t level_v4 = level_v3 | avx512f | avx512bw | avx512cd | avx512dq | avx512vl;

/// The features of this processor that the operating system lets programs use; 0 on other processors than x86.
std::uint64_t detected_features();

/// The features that the compiler was allowed to use in core: a constant without code.
extern std::uint64_t const compiled_features;

}  // namespace heddle::cpu
