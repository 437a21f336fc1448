#include "targets.hpp"

/// The function that libFuzzer calls; HEDDLE_FUZZ_TARGET is one of heddle::fuzz.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t count) {
  heddle::fuzz::HEDDLE_FUZZ_TARGET({bytes, count});
  return 0;
}
