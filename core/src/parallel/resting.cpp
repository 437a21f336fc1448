#include <chrono>
#include <heddle/core/parallel/resting.hpp>
#include <thread>

namespace heddle {

void wait_resting(Transfer& transfer) {
  auto const end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!transfer.progress()) {
    if (std::chrono::steady_clock::now() > end) {
      transfer.wait();
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace heddle
