#pragma once

#include <mpi.h>

#include <cstdint>
#include <exception>
#include <heddle/core/parallel/communicator.hpp>
#include <memory>

#include "peer_memory.hpp"
#include "rank_order_reduction.hpp"
#include "transfer.hpp"

namespace heddle {

/// A group of ranks over MPI, which owns its MPI communicator. Errors contain the collective and MPI's own message.
/// Freeing an MPI communicator is collective, so it is left to MPI while an exception passes: other ranks may be
/// waiting elsewhere.
class MpiCommunicator final : public CommunicatorBackend, public std::enable_shared_from_this<MpiCommunicator> {
 public:
  /// A duplicate of `parent`; collective over it.
  static std::shared_ptr<MpiCommunicator> duplicate(MPI_Comm parent, std::int64_t elements_per_call,
                                                    std::int64_t elements_while_computing);
  ~MpiCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<TransferBackend> run(CollectiveCall const& call) override;
  std::shared_ptr<CommunicatorBackend> split(int color, int key, std::string const& name) override;

 private:
  MpiCommunicator(MPI_Comm handle, MessageRules const& rules);

  /// Null: the call is done.
  using Pending = std::unique_ptr<TransferBackend>;

  Pending all_reduce(CollectiveCall const& call);
  Pending reduce_scatter(CollectiveCall const& call);
  Pending all_gather(CollectiveCall const& call) const;
  void gather_in_pieces(CollectiveCall const& call, MpiTransfer* started) const;
  void all_to_all(CollectiveCall const& call) const;
  Pending message(CollectiveCall const& call) const;
  Pending reduce_in_rank_order(RankOrderReduction::Call call, bool starts);
  /// For a blocking sum of this many bytes; null where messages carry it. Collective.
  PeerMemory* peer_memory(std::int64_t bytes);
  std::unique_ptr<MpiTransfer> transfer(CollectiveCall const& call) const;

  MPI_Comm handle_;
  int rank_ = 0;
  int size_ = 0;
  MessageRules rules_;
  int reductions_ = 0;  ///< in the order of the ranks; those started so far
  std::shared_ptr<BufferPool> buffers_ = std::make_shared<BufferPool>();
  bool has_tried_to_attach_ = false;
  std::unique_ptr<PeerMemory> peer_memory_;
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace heddle
