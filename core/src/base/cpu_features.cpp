#include "cpu_features.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <unistd.h>

#include <cstring>

// This file is compiled for the first x86-64 processors (core/CMakeLists.txt). It uses no templates and inline
// functions from elsewhere: the linker might take a copy of them that needs a newer processor.

namespace heddle::cpu {

namespace {

#if defined(__x86_64__)

enum Register { ebx = 1, ecx = 2, edx = 3 };

struct Place {
  std::uint64_t feature;
  char const* name;
  unsigned leaf;
  Register word;
  unsigned bit;
  unsigned state;  ///< bits of XCR0: the registers that the operating system must save
};

constexpr unsigned basic_leaf = 1;
constexpr unsigned extended_leaf = 7;
constexpr unsigned second_extended_leaf = 0x70001;  // leaf 7, subleaf 1: only its eax is read
constexpr unsigned vendor_leaf = 0x80000001;
constexpr unsigned vectors = 0x6;
constexpr unsigned wide_vectors = 0xe6;
constexpr unsigned tiles = 0x60000;

#define HEDDLE_PLACE(name, text, macro, leaf, word, bit, state) {name, text, leaf, word, bit, state},
constexpr Place places[] = {HEDDLE_CPU_FEATURES(HEDDLE_PLACE)};
#undef HEDDLE_PLACE

/// The result of CPUID for a leaf: registers eax to edx. For leaf 7's second subleaf, ebx holds its eax.
struct Words {
  unsigned of[4] = {};
};

Words ask(unsigned leaf) {
  Words words;
  unsigned* const w = words.of;
  if (leaf == second_extended_leaf) {
    unsigned highest = 0;
    if (__get_cpuid_count(7, 0, &highest, &w[1], &w[2], &w[3]) != 0 && highest >= 1) {
      __get_cpuid_count(7, 1, &w[0], &w[1], &w[2], &w[3]);
      w[ebx] = w[0];
      return words;
    }
    return Words();
  }
  return __get_cpuid_count(leaf, 0, &w[0], &w[1], &w[2], &w[3]) != 0 ? words : Words();
}

unsigned saved_state() {
  constexpr unsigned osxsave = 1U << 27;
  if ((ask(basic_leaf).of[ecx] & osxsave) == 0) {
    return 0;
  }
  unsigned low = 0;
  unsigned high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

void print(char const* text) {
  [[maybe_unused]] auto const written = write(STDERR_FILENO, text, strlen(text));
}

/// Runs before any other code of core and its users: a processor without the instructions that the compiler used gets
/// an error message instead of a signal.
__attribute__((constructor(101))) void require_compiled_features() {
  std::uint64_t const missing = compiled_features & ~detected_features();
  if (missing == 0) {
    return;
  }
  print("heddle: this program was compiled for a newer processor: this one, or its operating system, lacks");
  for (Place const& place : places) {
    if ((missing & place.feature) != 0) {
      print(" ");
      print(place.name);
    }
  }
  print("; the default build (HEDDLE_NATIVE=OFF) needs x86-64-v2, another one this machine or a newer\n");
  constexpr int bad_config = 78;
  _exit(bad_config);
}

#endif

}  // namespace

std::uint64_t detected_features() {
  std::uint64_t found = 0;
#if defined(__x86_64__)
  unsigned const state = saved_state();
  for (Place const& place : places) {
    bool const has = (ask(place.leaf).of[place.word] >> place.bit & 1U) != 0;
    if (has && (state & place.state) == place.state) {
      found |= place.feature;
    }
  }
#endif
  return found;
}

}  // namespace heddle::cpu
