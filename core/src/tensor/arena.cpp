#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cerrno>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/arena.hpp>
#include <string>
#include <system_error>

#include "huge_pages.hpp"

namespace heddle {

namespace {

using Memory = Kokkos::DefaultExecutionSpace::memory_space;
constexpr bool on_host = std::is_same_v<Memory, Kokkos::HostSpace>;
constexpr std::size_t alignment = 64;

/// With less than this a step is unlikely to fit, so an error is better than going on.
constexpr std::size_t least_capacity = std::size_t{1} << 28;

struct Block {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

void* map(std::size_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

Block map_block(std::size_t wanted) {
  if constexpr (on_host) {
    std::size_t bytes = wanted;
    void* block = map(bytes);
    while (block == MAP_FAILED && bytes / 2 >= least_capacity) {
      bytes /= 2;
      block = map(bytes);
    }
    if (block == MAP_FAILED) {
      throw Error(fmt::format(
          "the system refuses even an arena of {} bytes of address space: {}; allow more with `ulimit -v` or "
          "the job's memory limit, or set vm.overcommit_memory to 0 or 1",
          bytes, std::generic_category().message(errno)));
    }
    if (bytes < wanted) {
      // Half of what a limit leaves, because the heap and the other arenas also need memory.
      std::size_t const kept = bytes / 2;
      munmap(static_cast<std::byte*>(block) + kept, bytes - kept);
      bytes = kept;
    }
    advise_huge_pages(block, bytes);
    return {static_cast<std::byte*>(block), bytes};
  } else {
    return {static_cast<std::byte*>(Kokkos::kokkos_malloc<Memory>("heddle::Arena", wanted)), wanted};
  }
}

/// Writes to each page; what stands there stays.
void take_pages(std::byte* begin, std::size_t bytes) {
  std::size_t const page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page) {
    std::byte volatile& byte = begin[at];
    byte = byte;
  }
}

}  // namespace

Arena::Arena(std::size_t capacity) : wanted_(capacity) {}

Arena::~Arena() {
  if (block_ == nullptr) {
    return;
  }
  if constexpr (on_host) {
    munmap(block_, capacity_);
  } else {
    Kokkos::kokkos_free<Memory>(block_);
  }
}

std::size_t Arena::default_capacity() {
  return std::size_t{1} << (on_host ? 36 : 32);
}

void Arena::require_block() {
  if (block_ == nullptr) {
    Block const block = map_block(wanted_);
    block_ = block.begin;
    capacity_ = block.bytes;
  }
}

Tensor Arena::allocate(DType dtype, Shape const& shape) {
  require_block();
  std::size_t const bytes = static_cast<std::size_t>(shape.size()) * size_of(dtype);
  std::size_t const rounded = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (rounded > capacity_ - used_) {
    std::string const limit =
        capacity_ < wanted_ ? fmt::format(" (`ulimit -v` or strict overcommit refused it {} bytes)", wanted_) : "";
    throw Error(
        fmt::format("the arena of {} bytes{} is full: {} in use, {} more asked for; smaller micro-batches "
                    "(train.micro_batch_tokens) need less",
                    capacity_, limit, used_, rounded));
  }
  Tensor const tensor = Tensor::borrow(block_ + used_, dtype, shape);
  used_ += rounded;
  peak_ = std::max(peak_, used_);
  return tensor;
}

void Arena::reserve(std::size_t bytes) {
  require_block();
  if (bytes > capacity_) {
    throw Error(fmt::format("an arena of {} bytes cannot reserve {}", capacity_, bytes));
  }
  if constexpr (on_host) {
    take_pages(block_, bytes);
  }
}

void Arena::release(std::size_t mark) {
  used_ = std::min(used_, mark);
}

}  // namespace heddle
