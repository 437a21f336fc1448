#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <heddle/core/base/enumerations.hpp>
#include <heddle/core/parallel/mesh.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

struct Execution;

enum class ReduceOp : std::uint8_t { sum, max, min };

/// The collectives of a communicator. A ledger counts the uneven and the non-blocking forms with their collective, and
/// no splits.
enum class CollectiveOp : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  send,
  receive,
  barrier,
  split
};
inline constexpr std::size_t collectives = 8;  ///< in a ledger

std::string_view name_of(CollectiveOp collective);

/// Payload bytes: the tensor's for all_reduce, broadcast, send and receive; the whole output's for all_gather; the
/// whole input's for reduce_scatter; this rank's input's for all_to_all; none for a barrier.
struct Traffic {
  std::int64_t operations = 0;
  std::int64_t bytes = 0;

  Traffic& operator+=(Traffic const& more) {
    operations += more.operations;
    bytes += more.bytes;
    return *this;
  }
  friend Traffic operator*(std::int64_t times, Traffic const& one) {
    return {times * one.operations, times * one.bytes};
  }
  bool operator==(Traffic const&) const = default;
};

/// This rank's traffic over one communicator since it was made, by collective.
using Ledger = std::array<Traffic, collectives>;

/// The backend's part of a Transfer.
class TransferBackend {
 public:
  /// Waits if the transfer is unfinished, except while an exception passes; never throws.
  virtual ~TransferBackend() = default;
  /// Returns true when the transfer is done, and is then not called again.
  virtual bool progress() = 0;
  virtual void wait() = 0;
};

/// A message or a collective in flight: a value that is moved, not copied. It keeps its tensors' handles, but the
/// owner of borrowed memory must outlive it; until it is done, no code may write what it sends or read what it
/// receives. If it is destroyed unfinished it waits, except while an exception passes: the other rank may then never
/// come, so the transfer is left to MPI.
class Transfer {
 public:
  /// A transfer that is done.
  Transfer() = default;
  explicit Transfer(std::unique_ptr<TransferBackend> backend) : backend_(std::move(backend)) {}

  /// Returns true if it is done. MPI moves the bytes of large messages only inside this call, so overlap needs calls
  /// between pieces of work. Throws as the blocking collective does.
  bool progress();
  void wait();

 private:
  std::unique_ptr<TransferBackend> backend_;
};

/// One call of a collective, as a backend carries it out: shapes and dtypes are checked, and the tensors are contiguous
/// and in memory that the backend can read.
struct CollectiveCall {
  /// Consecutive elements of a tensor, one count for each rank.
  using Counts = std::span<std::int64_t const>;

  CollectiveOp collective;
  Tensor const& input;   ///< this rank's elements; the output itself where it works in place
  Tensor const& output;  ///< the result; an empty tensor where the collective has none
  ReduceOp op = ReduceOp::sum;
  int peer = -1;       ///< a broadcast's root, or the other rank of a message
  int tag = 0;         ///< of a message
  Counts counts = {};  ///< of uneven parts, in rank order; all_to_all: of `input`, never empty. Empty: equal parts
  Counts receive_counts = {};  ///< of the parts of all_to_all's `output`
  bool starts = false;         ///< the call returns before it is done

  bool is_message() const { return collective == CollectiveOp::send || collective == CollectiveOp::receive; }
  /// The tensor that Traffic counts.
  Tensor const& payload() const {
    return collective == CollectiveOp::all_gather || collective == CollectiveOp::receive ? output : input;
  }
  /// A literal: "all_reduce", "start_all_reduce" or "all_gather_rows".
  char const* name() const;
};

/// The ranks of a group; `dist` implements it over MPI.
class CommunicatorBackend {
 public:
  virtual ~CommunicatorBackend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// True if tensors in this memory can be passed as they are; others are copied to host memory and back.
  virtual bool reads(MemorySpace space) const { return space == MemorySpace::host; }
  /// Null if the call is done, as every call is that does not start.
  virtual std::unique_ptr<TransferBackend> run(CollectiveCall const& call) = 0;
  virtual std::shared_ptr<CommunicatorBackend> split(int color, int key, std::string const& name) = 0;
};

/// A group of ranks and the collectives used among them: a value, cheap to copy. Every operation but send and receive
/// is collective over the group. Inputs and outputs do not overlap, except that all_gather's input may be this rank's
/// part of the output itself, and start_reduce_scatter's output this rank's part of the input. Errors are exceptions
/// that name the collective.
///
/// A collective waits for the kernels that were called before it: for those of the execution named by `after` or, if
/// none is named, for all. Tensors may lie in any memory: where the backend cannot read it, they are staged through
/// host memory. Sums of bfloat16 are computed in float32, in the order of the ranks, and rounded once.
class Communicator {
 public:
  /// Rows of each rank, in rank order.
  using Rows = std::span<std::int64_t const>;

  /// One rank, no MPI.
  static Communicator self() { return Communicator(nullptr); }
  explicit Communicator(std::shared_ptr<CommunicatorBackend> backend);

  int rank() const { return backend_ ? backend_->rank() : 0; }
  int size() const { return backend_ ? backend_->size() : 1; }
  /// For decorators, such as a watch; null for one rank without MPI.
  std::shared_ptr<CommunicatorBackend> const& backend() const { return backend_; }

  /// A communicator of the same group and ledger, for collectives that wait only for the kernels of `execution`, which
  /// must outlive the result.
  Communicator after(Execution const& execution) const;

  /// All-reduce in place: every rank ends with the reduction over the ranks.
  void all_reduce(Tensor const& tensor, ReduceOp op = ReduceOp::sum) const;
  /// output: size() parts in rank order.
  void all_gather(Tensor const& input, Tensor const& output) const;

  /// Collectives of uneven parts, which are whole rows (indices of axis 0), any number of them, also 0; a row has the
  /// same shape on every rank. `rows` is the same list on every rank. input: [rows[rank()], …]; output: every rank's
  /// rows in rank order.
  void all_gather_rows(Tensor const& input, Tensor const& output, Rows rows) const;
  /// input: every rank's rows; output: this rank's rows of the sum.
  void reduce_scatter_rows(Tensor const& input, Tensor const& output, Rows rows) const;
  /// input: send_rows[i] rows for rank i, in rank order; output: receive_rows[i] rows from rank i, which must send
  /// exactly that number: fewer throw, more may crash MPI itself.
  void all_to_all_rows(Tensor const& input, Rows send_rows, Tensor const& output, Rows receive_rows) const;

  void broadcast(Tensor const& tensor, int root) const;
  /// tag: 0 … 8191.
  void send(Tensor const& tensor, int destination, int tag = 0) const { start_send(tensor, destination, tag).wait(); }
  /// The tensor must have the sender's dtype and size; otherwise throws.
  void receive(Tensor const& tensor, int source, int tag = 0) const;
  void barrier() const;

  /// The non-blocking forms; they match the blocking ones: messages between two ranks with one tag arrive in the order
  /// in which they were started. Ranks that send to each other at the same time do not block one another. After a
  /// started receive has got a wrong message, others with the same source and tag are undefined.
  [[nodiscard]] Transfer start_send(Tensor const& tensor, int destination, int tag = 0) const;
  [[nodiscard]] Transfer start_receive(Tensor const& tensor, int source, int tag = 0) const;
  /// Collectives are started in the same order on every rank.
  [[nodiscard]] Transfer start_all_gather(Tensor const& input, Tensor const& output) const;
  /// Ranks are added in their order, whatever the element count, so that the sum of an element does not depend on its
  /// neighbours. `progress` also adds: call it between pieces of work.
  [[nodiscard]] Transfer start_all_reduce(Tensor const& tensor, ReduceOp op = ReduceOp::sum) const;
  /// input: size() equal parts; output: this rank's part of the reduction, the same bits as start_all_reduce's.
  [[nodiscard]] Transfer start_reduce_scatter(Tensor const& input, Tensor const& output,
                                              ReduceOp op = ReduceOp::sum) const;

  /// The group of the ranks that gave the same colour, ordered by key; it has its own ledger. Messages about hangs and
  /// mismatches call it `name`.
  Communicator split(int color, int key, std::string const& name = "group") const;

  /// The traffic of this communicator and its copies; a transfer is counted when it starts. One rank moves nothing.
  Ledger const& ledger() const { return *ledger_; }

 private:
  /// Counts the call, stages its tensors and carries it out; done for a call that does not start.
  Transfer run(CollectiveCall const& call) const;
  /// Checks a message and runs it.
  Transfer message(CollectiveCall const& call) const;

  std::shared_ptr<CommunicatorBackend> backend_;
  std::shared_ptr<Ledger> ledger_;
  Execution const* execution_ = nullptr;  ///< a collective waits for its kernels; null: for every execution's
};

/// A rank's place in the world and its groups: passed to all code that depends on ranks. `context` and `tensor` are
/// those of the last stack's grid; `encoder` has those of the stacks before it, see Grid.
class ParallelState {
 public:
  /// Makes the communicator of a group of the mesh.
  using MakeGroup = std::function<Communicator(MeshGroup const&)>;

  /// One rank.
  ParallelState() = default;
  /// Makes the groups below; collective over all ranks if `make_group` is.
  ParallelState(Communicator all_ranks, Mesh own_mesh, MakeGroup make_group);

  /// The ranks that differ from this one only along `axes`, in ascending order. A group along several axes is made by
  /// the first call, which is collective over the world; copies of this state share it.
  Communicator group(MeshAxes const& axes) const { return group(mesh.group(axes)); }
  /// The same for another group of the mesh.
  Communicator group(MeshGroup const& group) const;
  /// Make the groups of runs of `ranks` replicas (Mesh::replica_run) and those of their copies; collective over the
  /// world.
  void divide_experts(int ranks);
  void divide_parameters(int ranks);

  /// The state that the stacks of a grid see.
  ParallelState const& of(Grid grid) const { return grid == Grid::encoder && encoder ? *encoder : *this; }
  /// Sets how the layers of both grids use the groups: sequence_parallel and context_mode.
  void set_modes(bool divides_rows, ContextMode mode);

  Mesh mesh;
  Communicator world = Communicator::self();
  Communicator pipeline = Communicator::self();
  Communicator data = Communicator::self();
  Communicator context = Communicator::self();
  Communicator tensor = Communicator::self();
  Communicator replicas = Communicator::self();  ///< the ranks that hold the same parameter shards: replica_axes
  /// The ranks whose losses are parts of one sum: the replicas, and the other ranks that divide the decoder's
  /// sequences.
  Communicator loss_parts = Communicator::self();
  Communicator experts = Communicator::self();  ///< this rank's run of replicas that divides the experts of mixtures
  Communicator expert_copies = Communicator::self();  ///< the ranks that have the same experts
  /// This rank's run of replicas that divides other parameters than experts; one rank: all replicas do, or none.
  Communicator shards = Communicator::self();
  Communicator shard_copies = Communicator::self();  ///< the ranks that have the same parts of these
  bool sequence_parallel = false;                    ///< the tensor group divides the residual stream's rows
  ContextMode context_mode = ContextMode::ring;
  std::shared_ptr<ParallelState> encoder = nullptr;  ///< null: the encoder's grid is the decoder's

 private:
  using Groups = std::map<std::string, Communicator>;

  MakeGroup make_group_;
  std::shared_ptr<Groups> groups_ = std::make_shared<Groups>();  ///< by name
};

/// Splits `world` into the mesh's groups; collective over `world`.
ParallelState make_parallel_state(Communicator const& world, Mesh const& mesh);

}  // namespace heddle
