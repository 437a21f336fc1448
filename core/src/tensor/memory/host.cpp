// Kernels compute in host memory.
#include <sys/mman.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/device_work.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <new>
#include <system_error>

#include "system_memory.hpp"

namespace heddle {

namespace {

using Memory = Kokkos::DefaultExecutionSpace::memory_space;
static_assert(std::is_same_v<Memory, Kokkos::HostSpace>, "this Kokkos computes in a device's memory");
constexpr std::size_t alignment = 64;

/// With less than this only the smallest models would fit, so an error is better than a start.
constexpr std::size_t min_capacity = std::size_t{1} << 27;

void* map(std::size_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

}  // namespace

MemorySpace kernel_memory_space() {
  return MemorySpace::host;
}

void start_kernel_memory() {}
void end_kernel_memory() {}

std::shared_ptr<void> take_zeroed(std::size_t bytes) {
  // Zeroes words, because Kokkos would zero element by element.
  using Words = Kokkos::View<std::uint64_t*, Memory>;
  Words const view(Kokkos::view_alloc("heddle::Tensor", Kokkos::WithoutInitializing),
                   (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
  advise_huge_pages(view.data(), view.size() * sizeof(std::uint64_t));
  Kokkos::deep_copy(view, std::uint64_t{0});
  return {std::make_shared<Words>(view), view.data()};
}

std::shared_ptr<void> take_on_host(std::size_t bytes) {
  auto const free_aligned = [](void* data) { ::operator delete(data, std::align_val_t(alignment)); };
  std::shared_ptr<void> const memory(::operator new(bytes, std::align_val_t(alignment)), free_aligned);
  advise_huge_pages(memory.get(), bytes);
  return memory;
}

std::size_t default_block_bytes() {
  return std::size_t{1} << 36;
}

ArenaBlock map_block(std::size_t wanted) {
  std::size_t bytes = wanted;
  void* block = map(bytes);
  while (block == MAP_FAILED && bytes / 2 >= min_capacity) {
    bytes /= 2;
    block = map(bytes);
  }
  if (block == MAP_FAILED) {
    throw Error(
        "the system refuses even an arena of {} bytes of address space: {}; allow more with `ulimit -v` or "
        "the job's memory limit, or set vm.overcommit_memory to 0 or 1",
        bytes, std::generic_category().message(errno));
  }
  if (bytes < wanted) {
    // At most a quarter of what a limit leaves, because the heap, generated code and the other arenas also need it:
    // with half, six arenas left 64 MiB of 4 GB.
    std::size_t const kept = bytes / 4;
    munmap(static_cast<std::byte*>(block) + kept, bytes - kept);
    bytes = kept;
  }
  advise_huge_pages(block, bytes);
  return {static_cast<std::byte*>(block), bytes};
}

void unmap_block(ArenaBlock const& block) {
  munmap(block.begin, block.bytes);
}

void take_pages(ArenaBlock const& block, std::size_t bytes) {
  std::size_t const page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page) {
    std::byte volatile& byte = block.begin[at];
    byte = byte;
  }
}

void copy_in(void* to, void const* from_host, std::size_t bytes, Execution const* execution) {
  wait_for_kernels(execution);
  std::memcpy(to, from_host, bytes);
}

void copy_out(void* to_host, void const* from, std::size_t bytes, Execution const* execution) {
  wait_for_kernels(execution);
  std::memcpy(to_host, from, bytes);
}

void start_copy_in(void* to, void const* from_host, std::size_t bytes) {
  copy_in(to, from_host, bytes, nullptr);
}

void copy_within(void* to, void const* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void wait_for_kernels(Execution const* execution) {
  if (execution != nullptr) {
    execution->space.fence();
  } else {
    Kokkos::fence();
  }
}

std::optional<DeviceWork> device_work() {
  return std::nullopt;
}

void reset_device_work() {}

}  // namespace heddle
