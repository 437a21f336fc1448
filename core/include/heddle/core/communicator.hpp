#pragma once

#include <cstdint>
#include <heddle/core/mesh.hpp>
#include <heddle/core/tensor.hpp>
#include <memory>
#include <string>

namespace heddle {

enum class ReduceOp : std::uint8_t { sum, max, min };

/// What a communicator of several ranks is made of; `dist` has the one over MPI. Tensors are contiguous; the verbs are
/// those of Communicator, which has checked shapes and dtypes before it calls.
class CommunicatorBackend {
 public:
  virtual ~CommunicatorBackend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void all_reduce(Tensor const& tensor, ReduceOp op) = 0;
  virtual void reduce_scatter(Tensor const& input, Tensor const& output, ReduceOp op) = 0;
  virtual void all_gather(Tensor const& input, Tensor const& output) = 0;
  virtual void all_to_all(Tensor const& input, Tensor const& output) = 0;
  virtual void broadcast(Tensor const& tensor, int root) = 0;
  virtual void send(Tensor const& tensor, int destination, int tag) = 0;
  virtual void receive(Tensor const& tensor, int source, int tag) = 0;
  virtual void barrier() = 0;
  virtual std::shared_ptr<CommunicatorBackend> split(int color, int key) = 0;
};

/// A group of ranks and the few verbs used among them: a value, cheap to copy. Every verb but send and receive is
/// collective over the group. Errors are exceptions that name the verb.
class Communicator {
 public:
  /// One rank, no MPI.
  static Communicator self() { return Communicator(nullptr); }
  explicit Communicator(std::shared_ptr<CommunicatorBackend> backend) : backend_(std::move(backend)) {}

  int rank() const { return backend_ ? backend_->rank() : 0; }
  int size() const { return backend_ ? backend_->size() : 1; }

  /// In place: every rank ends with the reduction over the ranks.
  void all_reduce(Tensor const& tensor, ReduceOp op = ReduceOp::sum) const;
  /// input: size() equal parts; output: this rank's part of the reduction.
  void reduce_scatter(Tensor const& input, Tensor const& output, ReduceOp op = ReduceOp::sum) const;
  /// output: size() parts in rank order.
  void all_gather(Tensor const& input, Tensor const& output) const;
  /// input's part i goes to rank i, and output's part i came from rank i.
  void all_to_all(Tensor const& input, Tensor const& output) const;
  void broadcast(Tensor const& tensor, int root) const;
  void send(Tensor const& tensor, int destination, int tag = 0) const;
  /// The tensor's dtype and size must be the sender's; otherwise throws.
  void receive(Tensor const& tensor, int source, int tag = 0) const;
  void barrier() const;
  /// The ranks that gave the same colour, ordered by key.
  Communicator split(int color, int key) const;

 private:
  std::shared_ptr<CommunicatorBackend> backend_;
};

/// A rank's place in the world and its groups: passed in wherever ranks matter.
struct ParallelState {
  Mesh mesh;
  Communicator world = Communicator::self();
  Communicator pipeline = Communicator::self();
  Communicator data = Communicator::self();
  Communicator context = Communicator::self();
  Communicator tensor = Communicator::self();
};

/// Splits `world` into the mesh's groups; collective over `world`.
ParallelState make_parallel_state(Communicator const& world, Mesh const& mesh);

}  // namespace heddle
