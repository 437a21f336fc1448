#include <heddle/core/tensor/runtime.hpp>

#include "test.hpp"

#ifdef __SANITIZE_ADDRESS__
/// HDF5 1.10 loses memory of its own where a damaged file cannot be opened.
extern "C" char const*
__lsan_default_suppressions();               // NOLINT(bugprone-reserved-identifier): the name is LeakSanitizer's
char const* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libhdf5";
}
#endif

// The main of every test program that runs without mpirun.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  heddle::Runtime const runtime;
  return RUN_ALL_TESTS();
}
