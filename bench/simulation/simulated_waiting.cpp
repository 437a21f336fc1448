// In place of core/src/parallel/backoff.cpp: a rank that waits lets simulated time pass.
#include <heddle/core/parallel/backoff.hpp>

#include "clock.hpp"

namespace heddle {

void wait_with_backoff(Transfer& transfer) {
  while (!transfer.progress()) {
    clock::pass();
  }
}

void yield_core() {
  clock::pass();
}

}  // namespace heddle
