#include "cpu_features.hpp"

namespace heddle::cpu {

// This file is compiled with core's own instruction set. A macro that the compiler defines becomes the text "1",
// another one its own name. The matrix registers' features are left out: only kernels with their own checks use them.
#define HEDDLE_TEXT_OF(macro) #macro
#define HEDDLE_COMPILED(name, text, macro, ...) | (HEDDLE_TEXT_OF(macro)[0] == '1' ? std::uint64_t{name} : 0)
constinit std::uint64_t const compiled_features = (0 HEDDLE_CPU_FEATURES(HEDDLE_COMPILED)) & ~(amx_tile | amx_bf16);
#undef HEDDLE_COMPILED
#undef HEDDLE_TEXT_OF

}  // namespace heddle::cpu
