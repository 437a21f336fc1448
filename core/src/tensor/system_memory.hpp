#pragma once

#include <cstddef>
#include <memory>

namespace heddle {

// The only file of core that takes memory from the system. A program that computes nothing links another
// implementation, whose memory is no more than addresses: bench/simulation.

/// Zeroed memory that kernels compute in, 64-byte aligned.
std::shared_ptr<void> take_zeroed(std::size_t bytes);
/// Uninitialised host memory, 64-byte aligned.
std::shared_ptr<void> take_on_host(std::size_t bytes);

/// The block of an arena.
struct ArenaBlock {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

/// A block of kernels' memory; on the host its pages are allocated when first touched, and the block is smaller where
/// the system refuses that much. Throws Error where even a small one is refused.
ArenaBlock map_block(std::size_t wanted);
void unmap_block(ArenaBlock const& block);
/// Takes the pages of the block's first `bytes` from the system now; their content stays.
void take_pages(ArenaBlock const& block, std::size_t bytes);

}  // namespace heddle
