// Nanoseconds in which a cache line travels between two cores and back: bench_core_round_trip CORE CORE. Cores that
// share a last-level cache take about 50, others several times as many; a virtual machine's may change from one moment
// to the next.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

constexpr int round_trips = 500'000;

void bind_to(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(core), &cores);
  if (pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores) != 0) {
    std::fprintf(stderr, "bench_core_round_trip: this process cannot use core %d\n", core);
    std::exit(64);
  }
}

/// Waits until the other core has written `value`.
void wait_for(std::atomic<int> const& number, int value) {
  while (number.load(std::memory_order_acquire) != value) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  int const here = argc == 3 ? std::atoi(argv[1]) : 0;
  int const there = argc == 3 ? std::atoi(argv[2]) : 0;
  if (here == there) {
    std::fprintf(stderr, "bench_core_round_trip CORE CORE: two different numbers of cores\n");
    return 64;
  }
  alignas(128) std::atomic<int> number{0};
  std::thread other([&] {
    bind_to(there);
    for (int trip = 0; trip < round_trips; ++trip) {
      wait_for(number, 2 * trip + 1);
      number.store(2 * trip + 2, std::memory_order_release);
    }
  });
  bind_to(here);
  auto const begin = std::chrono::steady_clock::now();
  for (int trip = 0; trip < round_trips; ++trip) {
    number.store(2 * trip + 1, std::memory_order_release);
    wait_for(number, 2 * trip + 2);
  }
  std::chrono::duration<double, std::nano> const passed = std::chrono::steady_clock::now() - begin;
  other.join();
  std::printf("%.0f\n", passed.count() / round_trips);
}
