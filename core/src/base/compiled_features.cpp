#include "cpu_features.hpp"

namespace heddle::cpu {

// This file is compiled with core's own instruction set.
constinit std::uint64_t const compiled_features = 0
#ifdef __SSE3__
                                                  | sse3
#endif
#ifdef __SSSE3__
                                                  | ssse3
#endif
#ifdef __SSE4_1__
                                                  | sse4_1
#endif
#ifdef __SSE4_2__
                                                  | sse4_2
#endif
#ifdef __POPCNT__
                                                  | popcnt
#endif
#ifdef __AVX__
                                                  | avx
#endif
#ifdef __AVX2__
                                                  | avx2
#endif
#ifdef __FMA__
                                                  | fma
#endif
#ifdef __F16C__
                                                  | f16c
#endif
#ifdef __BMI__
                                                  | bmi
#endif
#ifdef __BMI2__
                                                  | bmi2
#endif
#ifdef __LZCNT__
                                                  | lzcnt
#endif
#ifdef __MOVBE__
                                                  | movbe
#endif
#ifdef __AVX512F__
                                                  | avx512f
#endif
#ifdef __AVX512BW__
                                                  | avx512bw
#endif
#ifdef __AVX512CD__
                                                  | avx512cd
#endif
#ifdef __AVX512DQ__
                                                  | avx512dq
#endif
#ifdef __AVX512VL__
                                                  | avx512vl
#endif
#ifdef __AVX512VBMI__
                                                  | avx512vbmi
#endif
#ifdef __AVX512VBMI2__
                                                  | avx512vbmi2
#endif
#ifdef __AVX512VNNI__
                                                  | avx512vnni
#endif
#ifdef __AVX512BF16__
                                                  | avx512bf16
#endif
    ;

}  // namespace heddle::cpu
