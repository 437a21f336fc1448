#include <Kokkos_Core.hpp>
#include <atomic>
#include <heddle/core/tensor/runtime.hpp>
#include <thread>

#include "test.hpp"

namespace heddle {
namespace {

/// True if the calling thread computes with denormal numbers.
bool keeps_denormals() {
  float const volatile min = std::numeric_limits<float>::min();
  float const volatile half = 0.5F * min;
  return half != 0.0F;
}

// Both tests need the Runtime of the test program's main.

TEST(RuntimeTest, EveryThreadOfKokkosFlushesDenormals) {
#if !defined(__SSE__)
  GTEST_SKIP() << "denormals are flushed only on x86";
#endif
  using Space = Kokkos::DefaultHostExecutionSpace;
  int const threads = Space().concurrency();
  std::atomic<int> keeping = 0;
  std::atomic<int> asked = 0;
  // Static schedule: each thread gets one index.
  using Policy = Kokkos::RangePolicy<Space, Kokkos::Schedule<Kokkos::Static>>;
  Policy const policy(0, static_cast<Policy::member_type>(threads));
  Kokkos::parallel_for("ask_threads", policy, [&](int) {
    keeping += keeps_denormals() ? 1 : 0;
    ++asked;
  });
  Space().fence();
  EXPECT_EQ(asked, threads);
  EXPECT_EQ(keeping, 0);
}

TEST(RuntimeTest, ThreadsThatAreStartedLaterFlushDenormals) {
#if !defined(__SSE__)
  GTEST_SKIP() << "denormals are flushed only on x86";
#endif
  bool keeps = true;
  std::thread([&] { keeps = keeps_denormals(); }).join();
  EXPECT_FALSE(keeps);
}

}  // namespace
}  // namespace heddle
