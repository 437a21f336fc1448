#pragma once

#include <mpi.h>

#include <cstdint>
#include <exception>
#include <heddle/core/parallel/communicator.hpp>
#include <memory>

#include "rank_order_reduction.hpp"
#include "transfer.hpp"

namespace heddle {

/// A group of ranks over MPI, which owns its MPI communicator. Errors contain the verb and MPI's own message. Freeing
/// an MPI communicator is collective, so it is left to MPI while an exception passes: other ranks may be waiting
/// elsewhere.
class MpiCommunicator final : public CommunicatorBackend, public std::enable_shared_from_this<MpiCommunicator> {
 public:
  /// A duplicate of `parent`; collective over it.
  static std::shared_ptr<MpiCommunicator> duplicate(MPI_Comm parent, std::int64_t elements_per_call,
                                                    std::int64_t elements_while_computing);
  ~MpiCommunicator() override;
  MpiCommunicator(MpiCommunicator const&) = delete;
  MpiCommunicator& operator=(MpiCommunicator const&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(Tensor const& tensor, ReduceOp op) override;
  void reduce_scatter(Tensor const& input, Tensor const& output, ReduceOp op) override;
  void reduce_scatter_uneven(Tensor const& input, Tensor const& output, Counts counts) override;
  void all_gather(Tensor const& input, Tensor const& output) override;
  void all_gather_uneven(Tensor const& input, Tensor const& output, Counts counts) override;
  void all_to_all(Tensor const& input, Tensor const& output) override;
  void all_to_all_uneven(Tensor const& input, Counts send_counts, Tensor const& output, Counts receive_counts) override;
  void broadcast(Tensor const& tensor, int root) override;
  void receive(Tensor const& tensor, int source, int tag) override;
  void barrier() override;
  std::unique_ptr<TransferBackend> start_send(Tensor const& tensor, int destination, int tag) override;
  std::unique_ptr<TransferBackend> start_receive(Tensor const& tensor, int source, int tag) override;
  std::unique_ptr<TransferBackend> start_all_gather(Tensor const& input, Tensor const& output) override;
  std::unique_ptr<TransferBackend> start_all_reduce(Tensor const& tensor, ReduceOp op) override;
  std::unique_ptr<TransferBackend> start_reduce_scatter(Tensor const& input, Tensor const& output,
                                                        ReduceOp op) override;
  std::shared_ptr<CommunicatorBackend> split(int color, int key, std::string const& name) override;

 private:
  /// Takes ownership of `handle`.
  MpiCommunicator(MPI_Comm handle, MessageRules const& rules);

  /// For a reduction whose messages have at most `elements_per_call` elements.
  RankOrderReduction::Channel next_channel(std::int64_t elements_per_call);
  void reduce_in_rank_order(RankOrderReduction::Call call);
  RankOrderReduction::Call all_reduce_call(Tensor const& tensor, ReduceOp op) const;
  std::vector<std::int64_t> shares(std::int64_t elements) const;
  static MPI_Op operation(ReduceOp op);
  std::unique_ptr<MpiTransfer> transfer(char const* verb, MpiTransfer::Kept kept) const;
  /// MPI's send buffer of a gather: `input`, or the mark that it is already in place.
  void const* gather_source(Tensor const& input, Tensor const& output, std::int64_t own_begin) const;
  void reduce_in_pieces(Tensor const& input, Tensor const& output, Counts counts, MPI_Op op) const;
  void gather_in_pieces(Tensor const& input, Tensor const& output, Counts counts) const;

  MPI_Comm handle_;
  int rank_ = 0;
  int size_ = 0;
  MessageRules rules_;
  int reductions_ = 0;  ///< in the order of the ranks; those started so far
  std::shared_ptr<BufferPool> buffers_ = std::make_shared<BufferPool>();
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace heddle
