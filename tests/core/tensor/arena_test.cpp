#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <heddle/core/tensor/arena.hpp>

#include "test.hpp"

namespace heddle {
namespace {

/// Limits this process's address space to its present size and `bytes` more; for death tests' children.
void leave_address_space(std::size_t bytes) {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  std::size_t pages = 0;
  if (file == nullptr || std::fscanf(file, "%zu", &pages) != 1) {
    std::_Exit(2);
  }
  std::fclose(file);
  rlim_t const limit = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + bytes;
  rlimit const limits{limit, limit};
  if (setrlimit(RLIMIT_AS, &limits) != 0) {
    std::_Exit(3);
  }
}

[[noreturn]] void use_two_arenas_in_little_address_space() {
  leave_address_space(std::size_t{4} << 30);
  Arena first;
  Arena second;
  for (Arena* const arena : {&first, &second}) {
    Tensor const tensor = arena->allocate(DType::float32, {1 << 20});
    float const one = 1;
    copy_from_host(tensor.rows((1 << 20) - 1, 1), &one);
  }
  std::_Exit(first.peak() == second.peak() ? 0 : 1);
}

[[noreturn]] void use_an_arena_without_address_space() {
  leave_address_space(std::size_t{32} << 20);
  try {
    Arena unused;
    Arena arena;
    arena.allocate(DType::float32, {1});
  } catch (Error const& error) {
    std::fputs(error.what(), stderr);
  }
  std::_Exit(0);
}

class ArenaDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    if (kernel_memory_space() != MemorySpace::host) {
      GTEST_SKIP() << "on a device an arena takes none of the host's addresses";
    }
  }
};

TEST_F(ArenaDeathTest, TakesLessWhereAddressSpaceIsLimited) {
  EXPECT_EXIT(use_two_arenas_in_little_address_space(), testing::ExitedWithCode(0), "");
}

TEST_F(ArenaDeathTest, SaysWhatLimitsIt) {
  EXPECT_EXIT(use_an_arena_without_address_space(), testing::ExitedWithCode(0), "refuses even an arena .*ulimit -v");
}

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(Arena, AReservedOneCausesNoPageFaults) {
  if (kernel_memory_space() != MemorySpace::host) {
    GTEST_SKIP() << "on a device the whole block is allocated";
  }
  constexpr std::size_t bytes = std::size_t{64} << 20;
  Arena arena;
  arena.reserve(bytes);
  Tensor const tensor = arena.allocate(DType::float32, {static_cast<std::int64_t>(bytes / sizeof(float))});
  long const before = page_faults();
  std::fill_n(tensor.data<float>(), tensor.size(), 1.0F);
  EXPECT_LT(page_faults() - before, 8);
  EXPECT_THROW(arena.reserve(2 * Arena::default_capacity()), Error);
}

TEST(Arena, HasThePlannedCapacityOnADevice) {
  Arena arena;
  arena.plan(1 << 12);
  arena.allocate(DType::float32, {1000});
  try {
    arena.allocate(DType::float32, {1000});
    EXPECT_EQ(kernel_memory_space(), MemorySpace::host);
  } catch (Error const& error) {
    EXPECT_EQ(kernel_memory_space(), MemorySpace::device);
    expect_contains(error.what(), "as the memory plan says");
  }
}

TEST(Arena, OfAddressesCanBeLarge) {
  Arena arena(Arena::default_capacity(Arena::Kind::addresses), Arena::Kind::addresses);
  arena.allocate(DType::float32, {std::int64_t{1} << 33});
  EXPECT_EQ(arena.peak(), std::size_t{1} << 35);
}

TEST(Arena, ReleasesToAMarkAndRefusesWhatDoesNotFit) {
  Arena arena(1 << 12);
  EXPECT_EQ(arena.mark(), 0U);
  arena.allocate(DType::float32, {16});
  {
    ArenaScope const scope(arena);
    arena.allocate(DType::float32, {900});
    EXPECT_THROW(arena.allocate(DType::float32, {900}), Error);
  }
  EXPECT_EQ(arena.mark(), 64U);
  arena.allocate(DType::float32, {900});
  EXPECT_EQ(arena.peak(), 64U + 3648U);
}

}  // namespace
}  // namespace heddle
