#include "system_memory.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/device_work.hpp>
#include <system_error>

namespace heddle {

namespace {

std::atomic<std::uint64_t> waits = 0;

}  // namespace

ArenaBlock map_addresses(std::size_t wanted) {
  void* const begin = mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    throw Error("the system refuses {} bytes of address space: {}; lift `ulimit -v`", wanted,
                std::generic_category().message(errno));
  }
  return {static_cast<std::byte*>(begin), wanted};
}

void unmap_addresses(ArenaBlock const& block) {
  munmap(block.begin, block.bytes);
}

void advise_huge_pages(void* begin, std::size_t bytes) {
  if (std::align(huge_page, huge_page, begin, bytes) != nullptr) {
    static_cast<void>(madvise(begin, bytes / huge_page * huge_page, MADV_HUGEPAGE));
  }
}

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
