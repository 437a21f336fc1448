// Kernels compute in the memory of Kokkos' device.
#include <Kokkos_Core.hpp>
#include <cstdint>
#include <heddle/core/tensor/device_work.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <string>

#include "memory_pool.hpp"
#include "system_memory.hpp"

namespace heddle {

namespace {

using Memory = Kokkos::DefaultExecutionSpace::memory_space;
#ifdef KOKKOS_HAS_SHARED_HOST_PINNED_SPACE
using HostMemory = Kokkos::SharedHostPinnedSpace;
#else
using HostMemory = Kokkos::HostSpace;
#endif
using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
using Bytes = Kokkos::View<unsigned char*, Memory, Unmanaged>;
using HostBytes = Kokkos::View<unsigned char*, Kokkos::HostSpace, Unmanaged>;

template <class Space>
std::shared_ptr<void> take_words(std::string const& name, std::size_t bytes, bool zeroed) {
  // Zeroes words, because Kokkos would zero element by element.
  using Words = Kokkos::View<std::uint64_t*, Space>;
  Words const view(Kokkos::view_alloc(name, Kokkos::WithoutInitializing),
                   (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
  if (zeroed) {
    Kokkos::deep_copy(view, std::uint64_t{0});
  }
  return {std::make_shared<Words>(view), view.data()};
}

MemoryPool& pinned_memory() {
  static MemoryPool pool(
      [](std::size_t bytes) { return take_words<HostMemory>("heddle::Tensor on the host", bytes, false); });
  return pool;
}

template <class To, class From>
void copy_and_wait(To const& to, From const& from, Execution const* execution) {
  if (execution == nullptr) {
    Kokkos::deep_copy(to, from);
  } else {
    Kokkos::deep_copy(execution->space, to, from);
    execution->space.fence();
  }
}

}  // namespace

MemorySpace kernel_memory_space() {
  return MemorySpace::device;
}

void start_kernel_memory() {}

void end_kernel_memory() {
  pinned_memory().clear();
}

std::shared_ptr<void> take_zeroed(std::size_t bytes) {
  return take_words<Memory>("heddle::Tensor", bytes, true);
}

std::shared_ptr<void> take_on_host(std::size_t bytes) {
  return pinned_memory().take(bytes);
}

std::size_t default_block_bytes() {
  return std::size_t{1} << 32;
}

ArenaBlock map_block(std::size_t wanted) {
  return {static_cast<std::byte*>(Kokkos::kokkos_malloc<Memory>("heddle::Arena", wanted)), wanted};
}

void unmap_block(ArenaBlock const& block) {
  Kokkos::kokkos_free<Memory>(block.begin);
}

void take_pages(ArenaBlock const& block, std::size_t bytes) {
  static_cast<void>(block);
  static_cast<void>(bytes);
}

void copy_in(void* to, void const* from_host, std::size_t bytes, Execution const* execution) {
  HostBytes const host(static_cast<unsigned char*>(const_cast<void*>(from_host)), bytes);
  copy_and_wait(Bytes(static_cast<unsigned char*>(to), bytes), host, execution);
}

void copy_out(void* to_host, void const* from, std::size_t bytes, Execution const* execution) {
  Bytes const device(static_cast<unsigned char*>(const_cast<void*>(from)), bytes);
  copy_and_wait(HostBytes(static_cast<unsigned char*>(to_host), bytes), device, execution);
}

void start_copy_in(void* to, void const* from_host, std::size_t bytes) {
  HostBytes const host(static_cast<unsigned char*>(const_cast<void*>(from_host)), bytes);
  Kokkos::deep_copy(Kokkos::DefaultExecutionSpace(), Bytes(static_cast<unsigned char*>(to), bytes), host);
}

void copy_within(void* to, void const* from, std::size_t bytes) {
  Bytes const source(static_cast<unsigned char*>(const_cast<void*>(from)), bytes);
  Kokkos::deep_copy(Kokkos::DefaultExecutionSpace(), Bytes(static_cast<unsigned char*>(to), bytes), source);
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
