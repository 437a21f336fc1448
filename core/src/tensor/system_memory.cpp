#include "system_memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <cerrno>
#include <cstdint>
#include <heddle/core/base/error.hpp>
#include <new>
#include <system_error>

#include "huge_pages.hpp"

namespace heddle {

namespace {

using Memory = Kokkos::DefaultExecutionSpace::memory_space;
constexpr bool on_host = std::is_same_v<Memory, Kokkos::HostSpace>;
constexpr std::size_t alignment = 64;

/// With less than this a step is unlikely to fit, so an error is better than going on.
constexpr std::size_t least_capacity = std::size_t{1} << 28;

void* map(std::size_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

}  // namespace

std::shared_ptr<void> take_zeroed(std::size_t bytes) {
  // Zeroes words, because Kokkos would zero element by element.
  using Words = Kokkos::View<std::uint64_t*, Memory>;
  Words const view(Kokkos::view_alloc("heddle::Tensor", Kokkos::WithoutInitializing),
                   (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
  if constexpr (on_host) {
    advise_huge_pages(view.data(), view.size() * sizeof(std::uint64_t));
  }
  Kokkos::deep_copy(view, std::uint64_t{0});
  return {std::make_shared<Words>(view), view.data()};
}

std::shared_ptr<void> take_on_host(std::size_t bytes) {
  auto const free_aligned = [](void* data) { ::operator delete(data, std::align_val_t(alignment)); };
  return {::operator new(bytes, std::align_val_t(alignment)), free_aligned};
}

ArenaBlock map_block(std::size_t wanted) {
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

void unmap_block(ArenaBlock const& block) {
  if constexpr (on_host) {
    munmap(block.begin, block.bytes);
  } else {
    Kokkos::kokkos_free<Memory>(block.begin);
  }
}

void take_pages(ArenaBlock const& block, std::size_t bytes) {
  if constexpr (on_host) {
    std::size_t const page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    for (std::size_t at = 0; at < bytes; at += page) {
      std::byte volatile& byte = block.begin[at];
      byte = byte;
    }
  }
}

}  // namespace heddle
