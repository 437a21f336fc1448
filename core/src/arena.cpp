#include <fmt/format.h>
#include <sys/mman.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <heddle/core/arena.hpp>
#include <heddle/core/error.hpp>

namespace heddle {

namespace {

using Memory = Kokkos::DefaultExecutionSpace::memory_space;
constexpr bool on_host = std::is_same_v<Memory, Kokkos::HostSpace>;
constexpr std::size_t alignment = 64;

std::byte* reserve(std::size_t bytes) {
  if constexpr (on_host) {
    void* const block =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) {
      throw Error(fmt::format("an arena of {} bytes can not be reserved", bytes));
    }
    // Advice only: a kernel without transparent huge pages says no, and small pages serve.
    static_cast<void>(madvise(block, bytes, MADV_HUGEPAGE));
    return static_cast<std::byte*>(block);
  } else {
    return static_cast<std::byte*>(Kokkos::kokkos_malloc<Memory>("heddle::Arena", bytes));
  }
}

}  // namespace

Arena::Arena(std::size_t capacity) : block_(reserve(capacity)), capacity_(capacity) {}

Arena::~Arena() {
  if constexpr (on_host) {
    munmap(block_, capacity_);
  } else {
    Kokkos::kokkos_free<Memory>(block_);
  }
}

Tensor Arena::allocate(DType dtype, Shape const& shape) {
  std::size_t const bytes = static_cast<std::size_t>(shape.size()) * size_of(dtype);
  std::size_t const rounded = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (rounded > capacity_ - used_) {
    throw Error(
        fmt::format("the arena of {} bytes is full: {} in use, {} more asked for; smaller micro-batches "
                    "(train.micro_batch_tokens) need less",
                    capacity_, used_, rounded));
  }
  Tensor const tensor = Tensor::borrow(block_ + used_, dtype, shape);
  used_ += rounded;
  peak_ = std::max(peak_, used_);
  return tensor;
}

void Arena::release(std::size_t mark) {
  used_ = std::min(used_, mark);
}

}  // namespace heddle
