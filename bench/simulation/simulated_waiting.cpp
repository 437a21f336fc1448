// In place of core/src/parallel/resting.cpp: a rank that waits lets simulated time pass.
#include <heddle/core/parallel/resting.hpp>

#include "clock.hpp"

namespace heddle {

void wait_resting(Transfer& transfer) {
  while (!transfer.progress()) {
    clock::pass();
  }
}

void yield_core() {
  clock::pass();
}

}  // namespace heddle
