#pragma once

#include <cstddef>
#include <cstdint>
#include <heddle/core/tensor/tensor.hpp>

namespace heddle {

/// One block from which a step takes its tensors by moving a mark; nothing is freed one by one. The block is reserved
/// at the first `allocate`. On the host that takes address space (huge pages where the system grants them) whose pages
/// appear when first touched, so `capacity` may be generous; where the system refuses it (`ulimit -v`, strict
/// overcommit) the block gets smaller. On a device the block is allocated whole.
class Arena {
 public:
  explicit Arena(std::size_t capacity = default_capacity());
  ~Arena();
  Arena(Arena const&) = delete;
  Arena& operator=(Arena const&) = delete;

  /// 64 GiB of address space on the host, 4 GiB of memory on a device.
  static std::size_t default_capacity();

  /// Uninitialised, 64-byte aligned, alive until `release` goes below it. Throws where the block is full or none can be
  /// had.
  Tensor allocate(DType dtype, Shape const& shape);

  std::size_t mark() const { return used_; }
  /// Frees everything allocated since `mark` was taken.
  void release(std::size_t mark);
  /// The most bytes ever in use.
  std::size_t peak() const { return peak_; }

 private:
  std::byte* block_ = nullptr;
  std::size_t wanted_ = 0;
  std::size_t capacity_ = 0;  ///< reserved of it, 0 before the first allocation
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

/// Releases on scope exit what was allocated inside the scope.
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
