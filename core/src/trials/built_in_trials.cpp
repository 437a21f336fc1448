#include <heddle/core/trials/trials.hpp>

// HEDDLE_OPERATIONS is EACH(name) for every operation `name` that has a file name_trials.cpp (CMakeLists.txt), which
// defines this function.

namespace heddle {

#define EACH(name) void add_##name##_trials(KernelRegistries& registries);
HEDDLE_OPERATIONS
#undef EACH

void add_built_in_trials(KernelRegistries& registries) {
#define EACH(name) add_##name##_trials(registries);
  HEDDLE_OPERATIONS
#undef EACH
}

}  // namespace heddle
