#pragma once

#include <cstddef>
#include <memory>

namespace heddle {

struct Execution;

// The only functions of core that take memory from the system and that copy between kernels' memory and the host's.
// CMake chooses one of the files host.cpp (kernels compute in host memory), kokkos_device.cpp (in a device's) and
// tests/support/emulated_device.cpp (in memory that the host may not touch); with kernel_memory_space() (tensor.hpp)
// and device_work() (device_work.hpp) they are a back end. A program that computes nothing links another
// implementation, whose memory is no more than addresses: bench/simulation.

/// Called once Kokkos runs, before the first kernel.
void start_kernel_memory();
void end_kernel_memory();

/// Zeroed memory that kernels compute in, 64-byte aligned.
std::shared_ptr<void> take_zeroed(std::size_t bytes);
/// Uninitialised host memory, 64-byte aligned. On a device it is pinned, so that copies are fast, and used again,
/// because to pin it is slow.
std::shared_ptr<void> take_on_host(std::size_t bytes);

struct ArenaBlock {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

/// The size of a block that no plan gives.
std::size_t default_block_bytes();
/// A block of kernels' memory; on the host its pages are allocated when first touched, and the block is smaller where
/// the system refuses that much. Throws Error where even a small one is refused.
ArenaBlock map_block(std::size_t wanted);
void unmap_block(ArenaBlock const& block);
/// Addresses without memory, for any back end.
ArenaBlock map_addresses(std::size_t wanted);
void unmap_addresses(ArenaBlock const& block);

/// The size of a huge page, where the system has them.
inline constexpr std::size_t huge_page = std::size_t{1} << 21;
/// Requests huge pages for the whole ones in [begin, begin + bytes) of host memory, best before it is touched: strided
/// access to parameter tables is slow with small pages. This is only advice: a system without huge pages ignores it.
void advise_huge_pages(void* begin, std::size_t bytes);
/// Takes the pages of the block's first `bytes` from the system now; their content stays.
void take_pages(ArenaBlock const& block, std::size_t bytes);

/// Copies to kernels' memory after the kernels of `execution`, or after all kernels if it is null; then returns when
/// the copy is done.
void copy_in(void* to, void const* from_host, std::size_t bytes, Execution const* execution);
/// Copies from kernels' memory in the same order; returns when the copy is done.
void copy_out(void* to_host, void const* from, std::size_t bytes, Execution const* execution);
/// Copies to kernels' memory between the kernels of the default execution; the host's memory stays as it is until the
/// host has waited for kernels.
void start_copy_in(void* to, void const* from_host, std::size_t bytes);
/// Copies from kernels' memory to kernels' memory between the kernels of the default execution.
void copy_within(void* to, void const* from, std::size_t bytes);
/// Waits for the kernels and copies of `execution`, or for all if it is null.
void wait_for_kernels(Execution const* execution);

void count_wait();

}  // namespace heddle
