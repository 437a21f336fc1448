#pragma once

#include <cstddef>
#include <cstdint>
#include <heddle/core/tensor/tensor.hpp>

namespace heddle {

/// One block from which a step takes its tensors by moving a mark; single tensors are not freed. The block is reserved
/// at the first `allocate`. On the host it is address space (huge pages where the system grants them) whose pages are
/// allocated when first touched, so `capacity` may be large; where the system refuses it (`ulimit -v`, strict
/// overcommit) the block is smaller. On a device the whole block is allocated.
class Arena {
 public:
  explicit Arena(std::size_t capacity = default_capacity());
  ~Arena();
  Arena(Arena const&) = delete;
  Arena& operator=(Arena const&) = delete;

  /// 64 GiB of address space on the host, 4 GiB of memory on a device.
  static std::size_t default_capacity();

  /// A tensor, uninitialised, 64-byte aligned, valid until `release` goes below it. Throws if the block is full or
  /// cannot be allocated.
  Tensor allocate(DType dtype, Shape const& shape);

  /// Takes the pages of the first `bytes` from the system now. Throws as allocate does.
  void reserve(std::size_t bytes);

  std::size_t mark() const { return used_; }
  /// Frees everything allocated since `mark` was taken.
  void release(std::size_t mark);
  /// The most bytes that were ever in use.
  std::size_t peak() const { return peak_; }

 private:
  void require_block();

  std::byte* block_ = nullptr;
  std::size_t wanted_ = 0;
  std::size_t capacity_ = 0;  ///< reserved of it, 0 before the first allocation
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

/// Releases, at the end of a scope, what was allocated inside it.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.release(mark_); }
  ArenaScope(ArenaScope const&) = delete;
  ArenaScope& operator=(ArenaScope const&) = delete;

 private:
  Arena& arena_;
  std::size_t mark_;
};

}  // namespace heddle
