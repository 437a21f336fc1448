#pragma once

#include <mpi.h>

#include <exception>
#include <heddle/core/parallel/communicator.hpp>
#include <memory>
#include <vector>

#include "transfer.hpp"

namespace heddle {

/// result = the parts combined in their order, element by element; of `count` elements each. In float32 if the dtype is
/// bfloat16. `result` may be one of the parts.
void combine_parts(DType dtype, ReduceOp op, std::vector<void const*> const& parts, void* result, std::int64_t count);

/// Host memory that is reused: a reduction's buffers are as large as its tensors and are needed again in each step.
class BufferPool {
 public:
  /// Uninitialised, [elements].
  Tensor take(DType dtype, std::int64_t elements);
  void release(Tensor buffer) { free_.push_back(std::move(buffer)); }

 private:
  std::vector<Tensor> free_;
};

/// A reduction that adds ranks in their order, in float32 if the dtype is bfloat16: the result depends neither on
/// message sizes nor on the MPI library. The elements are divided among the ranks; every rank sends each other rank
/// its part, adds the parts that it receives, and in an all-reduce sends its sum to all.
class RankOrderReduction final : public TransferBackend {
 public:
  /// The MPI communicator that carries the messages, and its owner. No other reduction in flight uses `tag` or
  /// `tag + 1`.
  struct Channel {
    std::shared_ptr<void const> owner;
    MPI_Comm handle;
    int rank;
    int tag;
    std::int64_t elements_per_call;
    std::shared_ptr<BufferPool> buffers;
  };
  struct Call {
    char const* collective;
    Tensor input;                      ///< all parts, in rank order
    Tensor output;                     ///< this rank's part; may be a part of the input
    std::vector<std::int64_t> counts;  ///< elements of each rank's part
    ReduceOp op;
    bool gathers;  ///< every rank's part of the result goes into `input`
  };

  RankOrderReduction(Channel channel, Call call);
  ~RankOrderReduction() override;

  bool progress() override;
  void wait() override;

 private:
  int ranks() const { return static_cast<int>(call_.counts.size()); }
  std::int64_t count(int rank) const { return call_.counts[static_cast<std::size_t>(rank)]; }
  std::int64_t offset(int rank) const { return offsets_[static_cast<std::size_t>(rank)]; }
  /// The buffer for another rank's values of this rank's elements.
  std::byte* received(int rank) const;
  /// Starts an exchange of elements with the other ranks.
  template <class Incoming, class Outgoing>
  std::unique_ptr<MpiTransfer> start(int tag, Incoming const& incoming, Outgoing const& outgoing) const;
  void start_exchange();
  void reduce();
  void start_gather();

  Channel channel_;
  Call call_;
  std::vector<std::int64_t> offsets_;
  Tensor buffer_;  ///< [ranks - 1, count]
  std::unique_ptr<MpiTransfer> exchange_;
  std::unique_ptr<MpiTransfer> gather_;
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace heddle
