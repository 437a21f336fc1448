#include <fmt/format.h>

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <exception>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/tensor/device_work.hpp>
#include <numeric>
#include <optional>

#include "tensor/memory/system_memory.hpp"

namespace heddle {

namespace {

/// The names of a collective, of its form with uneven parts and of its non-blocking form.
struct CollectiveNames {
  char const *plain, *rows, *started;
};
constexpr std::array<CollectiveNames, collectives + 1> collective_names{
    {{"all_reduce", "", "start_all_reduce"},
     {"reduce_scatter", "reduce_scatter_rows", "start_reduce_scatter"},
     {"all_gather", "all_gather_rows", "start_all_gather"},
     {"all_to_all", "all_to_all_rows", ""},
     {"broadcast", "", ""},
     {"send", "", "send"},
     {"receive", "", "receive"},
     {"barrier", "", ""},
     {"split", "", ""}}};

/// The input or output of a collective that has none.
Tensor const no_tensor;

void require_contiguous(Tensor const& tensor, char const* collective) {
  if (tensor.empty() || !tensor.contiguous()) {
    throw Error("{}: a contiguous tensor is needed", collective);
  }
}

void require_parts(Tensor const& whole, Tensor const& part, int parts, char const* collective) {
  require_contiguous(whole, collective);
  require_contiguous(part, collective);
  if (whole.dtype() != part.dtype() || whole.size() != part.size() * parts) {
    throw Error("{}: {} {} is not {} parts of {} {}", collective, name_of(whole.dtype()), whole.shape().to_string(),
                parts, name_of(part.dtype()), part.shape().to_string());
  }
}

void require_rank(int rank, int size, char const* collective) {
  if (rank < 0 || rank >= size) {
    throw Error("{}: there is no rank {} among {}", collective, rank, size);
  }
}

/// The number of elements of one index of axis 0.
std::int64_t row_width(Tensor const& tensor) {
  std::int64_t width = 1;
  for (int axis = 1; axis < tensor.shape().rank(); ++axis) {
    width *= tensor.dim(axis);
  }
  return width;
}

void require_same_rows(Tensor const& left, Tensor const& right, char const* collective) {
  require_contiguous(left, collective);
  require_contiguous(right, collective);
  if (left.shape().rank() == 0 || right.shape().rank() == 0 || left.dtype() != right.dtype() ||
      row_width(left) != row_width(right)) {
    throw Error("{}: rows of {} {} are not rows of {} {}", collective, name_of(left.dtype()), left.shape().to_string(),
                name_of(right.dtype()), right.shape().to_string());
  }
}

void require_rows(Tensor const& tensor, Communicator::Rows rows, int ranks, char const* collective) {
  bool const valid =
      static_cast<int>(rows.size()) == ranks && std::ranges::all_of(rows, [](auto count) { return count >= 0; });
  if (!valid || tensor.dim(0) != std::accumulate(rows.begin(), rows.end(), std::int64_t{0})) {
    throw Error("{}: the {} rows of {} are not the rows [{}] of {} ranks", collective, tensor.dim(0),
                tensor.shape().to_string(), fmt::join(rows, ", "), ranks);
  }
}

/// One rank's part of uneven rows, and the whole.
void require_rows(Tensor const& whole, Tensor const& part, Communicator::Rows rows, int rank, int ranks,
                  char const* collective) {
  require_same_rows(whole, part, collective);
  require_rows(whole, rows, ranks, collective);
  if (part.dim(0) != rows[static_cast<std::size_t>(rank)]) {
    throw Error("{}: rank {} holds {} rows, but its part is {}", collective, rank, rows[static_cast<std::size_t>(rank)],
                part.shape().to_string());
  }
}

/// One number for each rank; no allocation in groups of ordinary size.
using CountOfRanks = boost::container::small_vector<std::int64_t, 32>;

CountOfRanks elements_of(Communicator::Rows rows, Tensor const& tensor) {
  CountOfRanks counts(rows.begin(), rows.end());
  for (std::int64_t& count : counts) {
    count *= row_width(tensor);
  }
  return counts;
}

/// A tensor in memory that a backend can read: itself, or a copy in host memory. Earlier kernels that use it have
/// finished.
class Staged {
 public:
  enum class Role : std::uint8_t { input, output, both };

  /// Waits for the kernels of `execution`, for all kernels if it is null, except where it is a copy for output; then
  /// copies an input's elements.
  Staged(Tensor const& tensor, Role role, CommunicatorBackend const& backend, Execution const* execution)
      : tensor_(tensor), staged_(tensor), role_(role) {
    if (tensor.space() == MemorySpace::host) {
      return;
    }
    if (backend.reads(tensor.space())) {
      fence(execution);
      return;
    }
    staged_ = Tensor::allocate_on_host(tensor.dtype(), tensor.shape());
    if (role != Role::output) {
      copy_to_host(staged_.raw(), tensor, execution);
    }
  }

  Tensor const& tensor() const { return staged_; }
  bool copied() const { return staged_.raw() != tensor_.raw(); }
  /// Copies an output's elements back to the tensor. Call it once the collective is done.
  void copy_back() const {
    if (role_ != Role::input && copied()) {
      copy_from_host(tensor_, staged_.raw());
    }
  }

 private:
  Tensor tensor_;
  Tensor staged_;
  Role role_;
};

/// A transfer with an output that is staged: it is copied back when the transfer is done.
class CopyBack final : public TransferBackend {
 public:
  CopyBack(std::unique_ptr<TransferBackend> transfer, Staged output)
      : output_(std::move(output)), transfer_(std::move(transfer)) {}

  ~CopyBack() override {
    if (!done_ && std::uncaught_exceptions() <= exceptions_at_start_) {
      try {
        wait();
      } catch (std::exception const&) {
        // The transfer failed, so its output is not read.
        done_ = true;
      }
    }
  }

  bool progress() override {
    if (!done_ && transfer_->progress()) {
      finish();
    }
    return done_;
  }
  void wait() override {
    if (!done_) {
      transfer_->wait();
      finish();
    }
  }

 private:
  void finish() {
    output_.copy_back();
    done_ = true;
  }

  Staged output_;
  std::unique_ptr<TransferBackend> transfer_;  ///< destroyed first: it may still write to the output
  int exceptions_at_start_ = std::uncaught_exceptions();
  bool done_ = false;
};

/// Every collective that moves data, for a group of one rank.
void copy_to_self(Tensor const& input, Tensor const& output) {
  if (input.raw() == output.raw() || input.bytes() == 0) {
    return;
  }
  if (output.space() == MemorySpace::host) {
    copy_to_host(output.raw(), input);
  } else if (input.space() == MemorySpace::host) {
    copy_from_host(output, input.raw());
  } else {
    copy_within(output.raw(), input.raw(), static_cast<std::size_t>(input.bytes()));
  }
}

}  // namespace

std::string_view name_of(CollectiveOp collective) {
  return collective_names[static_cast<std::size_t>(collective)].plain;
}

char const* CollectiveCall::name() const {
  CollectiveNames const& names = collective_names[static_cast<std::size_t>(collective)];
  return !counts.empty() ? names.rows : starts ? names.started : names.plain;
}

bool Transfer::progress() {
  if (backend_ && backend_->progress()) {
    backend_.reset();
  }
  return !backend_;
}

void Transfer::wait() {
  if (backend_) {
    backend_->wait();
    backend_.reset();
  }
}

Communicator::Communicator(std::shared_ptr<CommunicatorBackend> backend)
    : backend_(std::move(backend)), ledger_(std::make_shared<Ledger>()) {}

Communicator Communicator::after(Execution const& execution) const {
  Communicator same = *this;
  same.execution_ = &execution;
  return same;
}

Transfer Communicator::run(CollectiveCall const& call) const {
  if (size() > 1) {
    Traffic& traffic = (*ledger_)[static_cast<std::size_t>(call.collective)];
    ++traffic.operations;
    traffic.bytes += call.payload().bytes();
  }
  if (!backend_) {
    copy_to_self(call.input, call.output);
    return {};
  }
  bool const in_place = &call.input == &call.output;
  Staged const input(call.input, in_place ? Staged::Role::both : Staged::Role::input, *backend_, execution_);
  std::optional<Staged> separate;
  if (!in_place) {
    separate.emplace(call.output, Staged::Role::output, *backend_, execution_);
  }
  Staged const& output = in_place ? input : *separate;
  auto transfer = backend_->run({call.collective, input.tensor(), output.tensor(), call.op, call.peer, call.tag,
                                 call.counts, call.receive_counts, call.starts});
  if (transfer == nullptr) {
    output.copy_back();
    return {};
  }
  if (output.copied()) {
    transfer = std::make_unique<CopyBack>(std::move(transfer), output);
  }
  return Transfer(std::move(transfer));
}

void Communicator::all_reduce(Tensor const& tensor, ReduceOp op) const {
  require_contiguous(tensor, "all_reduce");
  run({.collective = CollectiveOp::all_reduce, .input = tensor, .output = tensor, .op = op});
}

void Communicator::all_gather(Tensor const& input, Tensor const& output) const {
  require_parts(output, input, size(), "all_gather");
  run({.collective = CollectiveOp::all_gather, .input = input, .output = output});
}

void Communicator::all_gather_rows(Tensor const& input, Tensor const& output, Rows rows) const {
  require_rows(output, input, rows, rank(), size(), "all_gather_rows");
  run({.collective = CollectiveOp::all_gather, .input = input, .output = output, .counts = elements_of(rows, input)});
}

void Communicator::reduce_scatter_rows(Tensor const& input, Tensor const& output, Rows rows) const {
  require_rows(input, output, rows, rank(), size(), "reduce_scatter_rows");
  run({.collective = CollectiveOp::reduce_scatter,
       .input = input,
       .output = output,
       .counts = elements_of(rows, input)});
}

void Communicator::all_to_all_rows(Tensor const& input, Rows send_rows, Tensor const& output, Rows receive_rows) const {
  require_same_rows(input, output, "all_to_all_rows");
  require_rows(input, send_rows, size(), "all_to_all_rows");
  require_rows(output, receive_rows, size(), "all_to_all_rows");
  auto const here = static_cast<std::size_t>(rank());
  if (send_rows[here] != receive_rows[here]) {
    throw Error("all_to_all_rows: rank {} sends itself {} rows and receives {}", here, send_rows[here],
                receive_rows[here]);
  }
  run({.collective = CollectiveOp::all_to_all,
       .input = input,
       .output = output,
       .counts = elements_of(send_rows, input),
       .receive_counts = elements_of(receive_rows, input)});
}

void Communicator::broadcast(Tensor const& tensor, int root) const {
  require_contiguous(tensor, "broadcast");
  require_rank(root, size(), "broadcast");
  run({.collective = CollectiveOp::broadcast, .input = tensor, .output = tensor, .peer = root});
}

void Communicator::receive(Tensor const& tensor, int source, int tag) const {
  message({.collective = CollectiveOp::receive, .input = no_tensor, .output = tensor, .peer = source, .tag = tag});
}

void Communicator::barrier() const {
  run({.collective = CollectiveOp::barrier, .input = no_tensor, .output = no_tensor});
}

Transfer Communicator::start_send(Tensor const& tensor, int destination, int tag) const {
  return message({.collective = CollectiveOp::send,
                  .input = tensor,
                  .output = no_tensor,
                  .peer = destination,
                  .tag = tag,
                  .starts = true});
}

Transfer Communicator::start_receive(Tensor const& tensor, int source, int tag) const {
  return message({.collective = CollectiveOp::receive,
                  .input = no_tensor,
                  .output = tensor,
                  .peer = source,
                  .tag = tag,
                  .starts = true});
}

Transfer Communicator::message(CollectiveCall const& call) const {
  require_contiguous(call.payload(), call.name());
  require_rank(call.peer, size(), call.name());
  if (!backend_) {
    throw Error("{}: a communicator of one rank has no other rank", call.name());
  }
  return run(call);
}

Transfer Communicator::start_all_gather(Tensor const& input, Tensor const& output) const {
  require_parts(output, input, size(), "all_gather");
  return run({.collective = CollectiveOp::all_gather, .input = input, .output = output, .starts = true});
}

Transfer Communicator::start_all_reduce(Tensor const& tensor, ReduceOp op) const {
  require_contiguous(tensor, "all_reduce");
  return run({.collective = CollectiveOp::all_reduce, .input = tensor, .output = tensor, .op = op, .starts = true});
}

Transfer Communicator::start_reduce_scatter(Tensor const& input, Tensor const& output, ReduceOp op) const {
  require_parts(input, output, size(), "reduce_scatter");
  return run({.collective = CollectiveOp::reduce_scatter, .input = input, .output = output, .op = op, .starts = true});
}

Communicator Communicator::split(int color, int key, std::string const& name) const {
  if (!backend_) {
    return self();
  }
  auto part = backend_->split(color, key, name);
  return part->size() == 1 ? self() : Communicator(std::move(part));
}

ParallelState::ParallelState(Communicator all_ranks, Mesh own_mesh, MakeGroup make_group)
    : mesh(std::move(own_mesh)), world(std::move(all_ranks)), make_group_(std::move(make_group)) {
  for (auto const& [axis, size] : mesh.shape().axes()) {
    group({axis});
  }
  pipeline = group({MeshAxis::pipeline});
  data = group({MeshAxis::data});
  context = group(MeshShape::context_axes(Grid::decoder));
  tensor = group(MeshShape::tensor_axes(Grid::decoder));
  replicas = group(replica_axes());
  loss_parts = group({MeshAxis::data, MeshAxis::context, MeshAxis::encoder_tensor});
  if (mesh.shape().has_grids()) {
    encoder = std::make_shared<ParallelState>(*this);
    encoder->context = group(MeshShape::context_axes(Grid::encoder));
    encoder->tensor = group(MeshShape::tensor_axes(Grid::encoder));
  }
}

void ParallelState::set_modes(bool divides_rows, ContextMode mode) {
  sequence_parallel = divides_rows;
  context_mode = mode;
  if (encoder) {
    encoder->set_modes(divides_rows, mode);
  }
}

Communicator ParallelState::group(MeshGroup const& group) const {
  if (group.size == 1) {
    return Communicator::self();
  }
  auto const known = groups_->find(group.name);
  return known != groups_->end() ? known->second : groups_->emplace(group.name, make_group_(group)).first->second;
}

void ParallelState::divide_experts(int ranks) {
  experts = group(mesh.replica_run(ranks, "experts"));
  expert_copies = ranks > 1 ? group(mesh.across_replica_runs(ranks, "copies of experts")) : Communicator::self();
}

void ParallelState::divide_parameters(int ranks) {
  shards = group(mesh.replica_run(ranks, "shards"));
  shard_copies = ranks > 1 ? group(mesh.across_replica_runs(ranks, "copies of shards")) : Communicator::self();
}

ParallelState make_parallel_state(Communicator const& world, Mesh const& mesh) {
  return {world, mesh, [world](MeshGroup const& group) { return world.split(group.first, group.place, group.name); }};
}

}  // namespace heddle
