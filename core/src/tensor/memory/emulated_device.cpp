// Kernels compute on the host's processor in memory that is closed to the host's own code, which so learns of every
// access that a device would refuse: it ends with SIGSEGV.
#include <Kokkos_Core.hpp>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <heddle/core/tensor/device_work.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <new>

#include "address_range.hpp"
#include "memory_pool.hpp"
#include "system_memory.hpp"

namespace heddle {

namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t address_bytes = std::size_t{1} << 42;

/// Small and large pieces of it are apart, so that no huge page is split when one is given back.
struct DeviceMemory {
  AddressRange small{address_bytes, alignment};
  AddressRange large{address_bytes, AddressRange::huge_page};

  AddressRange& of(std::size_t bytes) { return bytes < AddressRange::huge_page ? small : large; }
  void open() {
    small.open();
    large.open();
  }
  void close() {
    small.close();
    large.close();
  }
};

DeviceMemory& device_memory() {
  // Never destroyed, because tensors may outlive the static objects of this library.
  static auto* const memory = new DeviceMemory;
  return *memory;
}

std::shared_ptr<void> take_aligned(std::size_t bytes) {
  auto const free_aligned = [](void* data) { ::operator delete(data, std::align_val_t(alignment)); };
  return {::operator new(bytes, std::align_val_t(alignment)), free_aligned};
}

MemoryPool& host_memory() {
  static MemoryPool pool(take_aligned);
  return pool;
}

struct Counters {
  std::atomic<std::int64_t> kernels, copies_to_device, copies_to_host, fences, allocations;
};

Counters& counters() {
  static Counters all;
  return all;
}

/// Device memory is open during its lifetime.
class Opening {
 public:
  Opening() { device_memory().open(); }
  ~Opening() { device_memory().close(); }
  Opening(Opening const&) = delete;
  Opening& operator=(Opening const&) = delete;
};

void kernel_begins(char const*, std::uint32_t, std::uint64_t*) {
  ++counters().kernels;
  device_memory().open();
}

void kernel_ends(std::uint64_t) {
  device_memory().close();
}

}  // namespace

MemorySpace kernel_memory_space() {
  return MemorySpace::device;
}

void start_kernel_memory() {
  namespace tools = Kokkos::Tools::Experimental;
  tools::set_begin_parallel_for_callback(kernel_begins);
  tools::set_begin_parallel_reduce_callback(kernel_begins);
  tools::set_begin_parallel_scan_callback(kernel_begins);
  tools::set_end_parallel_for_callback(kernel_ends);
  tools::set_end_parallel_reduce_callback(kernel_ends);
  tools::set_end_parallel_scan_callback(kernel_ends);
}

void end_kernel_memory() {
  host_memory().clear();
}

std::shared_ptr<void> take_zeroed(std::size_t bytes) {
  ArenaBlock const block = map_block(bytes);
  return {block.begin, [block](void*) { unmap_block(block); }};
}

std::shared_ptr<void> take_on_host(std::size_t bytes) {
  return host_memory().take(bytes);
}

std::size_t default_block_bytes() {
  // Every kernel opens and closes all addresses in use, which takes the longer the more these are.
  return std::size_t{1} << 28;
}

ArenaBlock map_block(std::size_t wanted) {
  ++counters().allocations;
  return {device_memory().of(wanted).take(wanted), wanted};
}

void unmap_block(ArenaBlock const& block) {
  device_memory().of(block.bytes).give_back(block.begin, block.bytes);
}

void take_pages(ArenaBlock const& block, std::size_t bytes) {
  static_cast<void>(block);
  static_cast<void>(bytes);
}

void copy_in(void* to, void const* from_host, std::size_t bytes, Execution const*) {
  ++counters().copies_to_device;
  Opening const opening;
  std::memcpy(to, from_host, bytes);
}

void copy_out(void* to_host, void const* from, std::size_t bytes, Execution const*) {
  ++counters().copies_to_host;
  Opening const opening;
  std::memcpy(to_host, from, bytes);
}

void start_copy_in(void* to, void const* from_host, std::size_t bytes) {
  copy_in(to, from_host, bytes, nullptr);
}

void copy_within(void* to, void const* from, std::size_t bytes) {
  Opening const opening;
  std::memcpy(to, from, bytes);
}

void wait_for_kernels(Execution const* execution) {
  ++counters().fences;
  if (execution != nullptr) {
    execution->space.fence();
  } else {
    Kokkos::fence();
  }
}

std::optional<DeviceWork> device_work() {
  Counters const& all = counters();
  return DeviceWork{all.kernels, all.copies_to_device, all.copies_to_host, all.fences, all.allocations};
}

void reset_device_work() {
  Counters& all = counters();
  for (auto* const counter :
       {&all.kernels, &all.copies_to_device, &all.copies_to_host, &all.fences, &all.allocations}) {
    *counter = 0;
  }
}

}  // namespace heddle
