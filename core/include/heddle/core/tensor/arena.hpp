#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <heddle/core/tensor/tensor.hpp>
#include <string>

namespace heddle {

/// One block from which a step takes its tensors by moving a mark; single tensors are not freed. The block is reserved
/// at the first `allocate`. On the host it is address space (huge pages where the system grants them) whose pages are
/// allocated when first touched, so `capacity` may be large; where the system refuses it (`ulimit -v`, strict
/// overcommit) the block is smaller. On a device the whole block is allocated, so a plan of the memory gives the
/// capacity.
class Arena {
 public:
  /// `addresses`: on a device the block is address space without memory, so that it may be large; kernels that compute
  /// nothing use it to count the memory that they would need.
  enum class Kind : std::uint8_t { memory, addresses };

  Arena() : Arena(default_capacity()) {}
  explicit Arena(std::size_t capacity, Kind kind = Kind::memory);
  ~Arena();
  Arena(Arena const&) = delete;
  Arena& operator=(Arena const&) = delete;

  /// The capacity where no plan gives one: 64 GiB of address space; on a device 4 GiB of memory.
  static std::size_t default_capacity(Kind kind = Kind::memory);

  /// A tensor, uninitialised, 64-byte aligned, valid until `release` goes below it. Throws if the block is full or
  /// cannot be allocated.
  Tensor allocate(DType dtype, Shape const& shape);

  /// Gives the block the capacity of a memory plan on a device; nothing on the host. Throws Error if it is allocated
  /// and smaller.
  void plan(std::size_t bytes);
  /// Takes the pages of the first `bytes` from the system now. Throws as allocate does.
  void reserve(std::size_t bytes);

  /// Whether the tensor's memory is the arena's.
  bool contains(Tensor const& tensor) const;

  std::size_t mark() const { return used_; }
  void release(std::size_t mark) { used_ = std::min(used_, mark); }
  /// The maximum number of bytes that were in use.
  std::size_t peak() const { return peak_; }

 private:
  void require_block();
  std::string full(std::size_t more) const;

  Kind kind_;
  bool planned_ = false;
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
