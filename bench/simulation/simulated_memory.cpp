// In place of core/src/tensor/memory/host.cpp: large tensors are addresses of one range, which all ranks share and
// nobody writes to, so that they take no memory. A rank's own tensors do not overlap, because the pipeline compares
// addresses.
#include <simgrid/actor.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/device_work.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <map>
#include <new>
#include <unordered_map>
#include <vector>

#include "system_memory.hpp"

namespace heddle {

namespace {

/// Numbers that ranks exchange and read are in smaller tensors, which are real.
constexpr std::size_t largest_real = std::size_t{1} << 18;
constexpr std::size_t range_bytes = std::size_t{1} << 46;

std::byte* range_begin() {
  static void* const begin =
      mmap(nullptr, range_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    throw Error("the system refuses 64 TiB of address space, which a simulation needs; lift `ulimit -v`");
  }
  return static_cast<std::byte*>(begin);
}

/// A rank's use of the range.
struct RankRange {
  std::size_t used = 0;
  std::map<std::size_t, std::vector<std::byte*>> free;  ///< by size
};

RankRange& own_range() {
  static std::unordered_map<aid_t, RankRange> ranges;
  return ranges[sg_actor_self_get_pid()];
}

std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  return (bytes + page - 1) / page * page;
}

std::byte* take_addresses(std::size_t bytes) {
  RankRange& range = own_range();
  if (auto const found = range.free.find(bytes); found != range.free.end() && !found->second.empty()) {
    std::byte* const begin = found->second.back();
    found->second.pop_back();
    return begin;
  }
  if (bytes > range_bytes - range.used) {
    throw Error("a simulated rank needs more than 64 TiB of addresses");
  }
  std::byte* const begin = range_begin() + range.used;
  range.used += bytes;
  return begin;
}

void give_addresses_back(std::byte* begin, std::size_t bytes) {
  own_range().free[bytes].push_back(begin);
}

std::shared_ptr<void> take(std::size_t bytes) {
  if (bytes > largest_real) {
    std::size_t const whole = rounded(bytes);
    return {take_addresses(whole), [whole](void* data) { give_addresses_back(static_cast<std::byte*>(data), whole); }};
  }
  void* const data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (data == nullptr) {
    throw std::bad_alloc();
  }
  std::memset(data, 0, bytes);
  return {data, std::free};
}

}  // namespace

MemorySpace kernel_memory_space() {
  return MemorySpace::host;
}

void start_kernel_memory() {}
void end_kernel_memory() {}

std::shared_ptr<void> take_zeroed(std::size_t bytes) {
  return take(bytes);
}

std::shared_ptr<void> take_on_host(std::size_t bytes) {
  return take(bytes);
}

std::size_t default_block_bytes() {
  return std::size_t{1} << 36;
}

ArenaBlock map_block(std::size_t wanted) {
  return {take_addresses(rounded(wanted)), rounded(wanted)};
}

void unmap_block(ArenaBlock const& block) {
  give_addresses_back(block.begin, block.bytes);
}

void take_pages(ArenaBlock const& block, std::size_t bytes) {
  static_cast<void>(block);
  static_cast<void>(bytes);
}

void copy_in(void* to, void const* from_host, std::size_t bytes, Execution const*) {
  std::memcpy(to, from_host, bytes);
}

void copy_out(void* to_host, void const* from, std::size_t bytes, Execution const*) {
  std::memcpy(to_host, from, bytes);
}

void start_copy_in(void* to, void const* from_host, std::size_t bytes) {
  std::memcpy(to, from_host, bytes);
}

void copy_within(void* to, void const* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void wait_for_kernels(Execution const*) {}

std::optional<DeviceWork> device_work() {
  return std::nullopt;
}

void reset_device_work() {}

}  // namespace heddle
