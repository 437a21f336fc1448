#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rank_order_reduction.hpp"

namespace heddle {

/// The memory of a group's other processes, which the kernel reads and writes for this one ("cross memory attach",
/// which MPI libraries use for large messages). A message's elements are all copied before the first is added; here a
/// rank reads a block, adds it while it is in the cache and writes the sum to where it belongs.
class PeerMemory {
 public:
  /// Null unless all ranks are processes of one host that may access each other's memory. Collective.
  static std::unique_ptr<PeerMemory> attach(MPI_Comm group);

  /// The same reduction as RankOrderReduction's, with the same bits. Returns when all ranks are done.
  void reduce(RankOrderReduction::Call const& call);

 private:
  /// A process of the group and where the tensor of its present call is.
  struct Peer {
    std::int64_t process;
    std::uint64_t tensor;
  };

  PeerMemory(MPI_Comm group, int rank, std::vector<Peer> peers);

  int ranks() const { return static_cast<int>(peers_.size()); }
  /// Waits for all ranks and exchanges their tensors' addresses; throws on every rank if their calls differ.
  void exchange_addresses(RankOrderReduction::Call const& call);
  /// Throws if a copy failed, when no other rank reads or writes this one's tensor any more. A lost process never
  /// reaches that point: then this one waits, as it would for its message, until the launcher ends it.
  void require(bool copied, RankOrderReduction::Call const& call, int rank) const;
  /// Reduces bytes of this rank's part, at most a block; they begin at `offset` in the tensor and `own_offset` in the
  /// part.
  void reduce_block(RankOrderReduction::Call const& call, std::int64_t offset, std::int64_t own_offset,
                    std::int64_t bytes);
  std::byte* received(int rank) const {
    return static_cast<std::byte*>(buffer_.raw()) + (rank < rank_ ? rank : rank - 1) * block_;
  }

  MPI_Comm group_;
  int rank_;
  std::vector<Peer> peers_;
  std::int64_t block_;  ///< bytes
  Tensor buffer_;       ///< a block of each other rank
};

}  // namespace heddle
