#include <atomic>
#include <heddle/core/tensor/fence.hpp>

#include "memory/system_memory.hpp"

namespace heddle {

namespace {

std::atomic<std::uint64_t> waits = 0;

}  // namespace

void fence(Execution const* execution) {
  wait_for_kernels(execution);
  count_wait();
}

std::uint64_t waits_for_kernels() {
  return waits;
}

void count_wait() {
  ++waits;
}

}  // namespace heddle
