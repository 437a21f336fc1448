#include <chrono>
#include <heddle/core/parallel/backoff.hpp>
#include <thread>

namespace heddle {

void wait_with_backoff(Transfer& transfer) {
  while (!transfer.progress()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void yield_core() {
  std::this_thread::yield();
}

}  // namespace heddle
