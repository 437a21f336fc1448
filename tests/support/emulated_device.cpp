// In place of core/src/tensor/memory/host.cpp, in the preset emulated-device: kernels compute on the host's processor
// in memory that is closed to the host's own code, which so learns of every access that a device would refuse: it ends
// with SIGSEGV.
#include <fmt/format.h>
#include <sys/mman.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/device_work.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <system_error>

#include "tensor/memory/memory_pool.hpp"
#include "tensor/memory/system_memory.hpp"

namespace heddle {

namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t address_bytes = std::size_t{1} << 42;

std::size_t rounded(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

/// One range of reserved addresses for the memory of an emulated device. No access is allowed except while the range
/// is open. Thread-safe.
class AddressRange {
 public:
  /// Gives memory in multiples of `unit`. Throws Error if the system refuses `bytes` of addresses.
  AddressRange(std::size_t bytes, std::size_t unit);
  ~AddressRange();
  AddressRange(AddressRange const&) = delete;
  AddressRange& operator=(AddressRange const&) = delete;

  /// Zeroed memory, whose pages are allocated when first touched. Throws Error if the range is full.
  std::byte* take(std::size_t bytes);
  void release(std::byte* begin, std::size_t bytes);

  /// Allows access until as many calls of close have come.
  void open();
  void close();

 private:
  void clear(std::byte* begin, std::size_t bytes) const;
  void protect(int access) const;

  std::mutex mutex_;
  ArenaBlock block_;
  std::byte* begin_ = nullptr;  ///< in it
  std::size_t bytes_ = 0;
  std::size_t unit_ = 0;
  std::size_t used_ = 0;                     ///< bytes below which the range has been in use
  std::map<std::size_t, std::size_t> free_;  ///< below `used_`: bytes by offset, neighbours joined
  int openings_ = 0;
};

AddressRange::AddressRange(std::size_t bytes, std::size_t unit)
    : block_(map_addresses(bytes + huge_page)), bytes_(bytes), unit_(unit) {
  auto const address = reinterpret_cast<std::uintptr_t>(block_.begin);
  begin_ = block_.begin + (rounded(address, huge_page) - address);
  advise_huge_pages(begin_, bytes);
}

AddressRange::~AddressRange() {
  unmap_addresses(block_);
}

std::byte* AddressRange::take(std::size_t bytes) {
  std::size_t const wanted = rounded(bytes, unit_);
  std::lock_guard const lock(mutex_);
  auto const found = std::ranges::find_if(free_, [wanted](auto const& part) { return part.second >= wanted; });
  if (found != free_.end()) {
    auto const [offset, available] = *found;
    free_.erase(found);
    if (available > wanted) {
      free_.emplace(offset + wanted, available - wanted);
    }
    return begin_ + offset;
  }
  if (wanted > bytes_ - used_) {
    throw Error("the emulated device's {} bytes of addresses are used up", bytes_);
  }
  std::size_t const offset = used_;
  used_ += wanted;
  if (openings_ > 0) {
    protect(PROT_READ | PROT_WRITE);
  }
  return begin_ + offset;
}

void AddressRange::release(std::byte* begin, std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  clear(begin, rounded(bytes, unit_));
  auto part = free_.emplace(static_cast<std::size_t>(begin - begin_), rounded(bytes, unit_)).first;
  if (auto const next = std::next(part); next != free_.end() && part->first + part->second == next->first) {
    part->second += next->second;
    free_.erase(next);
  }
  if (part != free_.begin()) {
    auto const before = std::prev(part);
    if (before->first + before->second == part->first) {
      before->second += part->second;
      free_.erase(part);
    }
  }
}

/// The next owner finds zeros. Small parts stay in their huge page.
void AddressRange::clear(std::byte* begin, std::size_t bytes) const {
  if (unit_ >= huge_page) {
    madvise(begin, bytes, MADV_DONTNEED);
    return;
  }
  if (openings_ == 0) {
    protect(PROT_READ | PROT_WRITE);
  }
  std::memset(begin, 0, bytes);
  if (openings_ == 0) {
    protect(PROT_NONE);
  }
}

void AddressRange::open() {
  std::lock_guard const lock(mutex_);
  if (++openings_ == 1) {
    protect(PROT_READ | PROT_WRITE);
  }
}

void AddressRange::close() {
  std::lock_guard const lock(mutex_);
  if (--openings_ == 0) {
    protect(PROT_NONE);
  }
}

void AddressRange::protect(int access) const {
  if (used_ > 0 && mprotect(begin_, rounded(used_, huge_page), access) != 0) {
    throw Error("mprotect of an emulated device's {} bytes: {}", used_, std::generic_category().message(errno));
  }
}

/// Small and large pieces of it are apart, so that no huge page is split when one is given back.
struct DeviceMemory {
  AddressRange small{address_bytes, alignment};
  AddressRange large{address_bytes, huge_page};

  AddressRange& of(std::size_t bytes) { return bytes < huge_page ? small : large; }
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
  device_memory().of(block.bytes).release(block.begin, block.bytes);
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
