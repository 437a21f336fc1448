#pragma once

#include <mpi.h>

#include <cstdint>
#include <heddle/core/communicator.hpp>
#include <memory>
#include <vector>

namespace heddle {

/// MPI's sum, max and min of bfloat16 numbers, which MPI does not know: each pair is summed in float32 and rounded.
class BFloat16Operations;

/// A group of ranks over MPI, which owns its MPI communicator. Errors name the verb and carry MPI's own words.
class MpiCommunicator final : public CommunicatorBackend {
 public:
  /// A duplicate of `parent`; collective over it.
  static std::shared_ptr<MpiCommunicator> duplicate(MPI_Comm parent, std::int64_t elements_per_call);
  ~MpiCommunicator() override;
  MpiCommunicator(MpiCommunicator const&) = delete;
  MpiCommunicator& operator=(MpiCommunicator const&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(Tensor const& tensor, ReduceOp op) override;
  void reduce_scatter(Tensor const& input, Tensor const& output, ReduceOp op) override;
  void all_gather(Tensor const& input, Tensor const& output) override;
  void all_to_all(Tensor const& input, Tensor const& output) override;
  void broadcast(Tensor const& tensor, int root) override;
  void send(Tensor const& tensor, int destination, int tag) override;
  void receive(Tensor const& tensor, int source, int tag) override;
  void barrier() override;
  std::shared_ptr<CommunicatorBackend> split(int color, int key) override;

 private:
  /// Elements that one MPI call moves.
  struct Piece {
    std::int64_t begin;
    int count;
  };

  /// Takes `handle` over.
  MpiCommunicator(MPI_Comm handle, std::int64_t elements_per_call,
                  std::shared_ptr<BFloat16Operations const> bfloat16_operations);

  std::vector<Piece> pieces(std::int64_t elements) const;
  MPI_Op operation(DType dtype, ReduceOp op) const;

  MPI_Comm handle_;
  int rank_ = 0;
  int size_ = 0;
  std::int64_t elements_per_call_;
  std::shared_ptr<BFloat16Operations const> bfloat16_operations_;
};

}  // namespace heddle
