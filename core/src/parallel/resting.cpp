#include <chrono>
#include <heddle/core/parallel/resting.hpp>
#include <thread>

namespace heddle {

void wait_resting(Transfer& transfer) {
  while (!transfer.progress()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void yield_core() {
  std::this_thread::yield();
}

}  // namespace heddle
