#include "decorated_backend.hpp"

#include <numeric>
#include <utility>

namespace heddle {

NamedGroup world_group(CommunicatorBackend const& world) {
  NamedGroup group{"world", std::vector<int>(static_cast<std::size_t>(world.size()))};
  std::iota(group.members.begin(), group.members.end(), 0);
  return group;
}

NamedGroup group_of(CommunicatorBackend& part, int world_rank, std::string const& name) {
  Tensor const own = Tensor::allocate_on_host(DType::int32, {1});
  Tensor const all = Tensor::allocate_on_host(DType::int32, {part.size()});
  copy_from_host(own, &world_rank);
  part.all_gather(own, all);
  return {name, to_host<std::int32_t>(all)};
}

template <class Action>
auto DecoratedBackend::run(VerbCall const& call, Action const& action) {
  before(call);
  struct After {
    DecoratedBackend& self;
    ~After() { self.after(); }
  } const at_the_end{*this};
  return action();
}

template <class Action>
std::unique_ptr<TransferBackend> DecoratedBackend::start(VerbCall const& call, Action const& action) {
  return run(call, [&] { return around(call, action()); });
}

void DecoratedBackend::all_reduce(Tensor const& tensor, ReduceOp op) {
  run({"all_reduce", tensor.size(), tensor.dtype(), static_cast<int>(op)}, [&] { inner_->all_reduce(tensor, op); });
}

void DecoratedBackend::reduce_scatter(Tensor const& input, Tensor const& output, ReduceOp op) {
  run({"reduce_scatter", input.size(), input.dtype(), static_cast<int>(op)},
      [&] { inner_->reduce_scatter(input, output, op); });
}

void DecoratedBackend::reduce_scatter_uneven(Tensor const& input, Tensor const& output, Counts counts) {
  run({"reduce_scatter_rows", input.size(), input.dtype(), -1, -1, counts},
      [&] { inner_->reduce_scatter_uneven(input, output, counts); });
}

void DecoratedBackend::all_gather(Tensor const& input, Tensor const& output) {
  run({"all_gather", output.size(), output.dtype()}, [&] { inner_->all_gather(input, output); });
}

void DecoratedBackend::all_gather_uneven(Tensor const& input, Tensor const& output, Counts counts) {
  run({"all_gather_rows", output.size(), output.dtype(), -1, -1, counts},
      [&] { inner_->all_gather_uneven(input, output, counts); });
}

void DecoratedBackend::all_to_all(Tensor const& input, Tensor const& output) {
  run({"all_to_all", input.size(), input.dtype()}, [&] { inner_->all_to_all(input, output); });
}

void DecoratedBackend::all_to_all_uneven(Tensor const& input, Counts send_counts, Tensor const& output,
                                         Counts receive_counts) {
  // Ranks send different numbers of elements: before_exchange compares them.
  run({"all_to_all_rows", 0, input.dtype()}, [&] {
    before_exchange(send_counts, receive_counts);
    inner_->all_to_all_uneven(input, send_counts, output, receive_counts);
  });
}

void DecoratedBackend::broadcast(Tensor const& tensor, int root) {
  run({"broadcast", tensor.size(), tensor.dtype(), root}, [&] { inner_->broadcast(tensor, root); });
}

void DecoratedBackend::receive(Tensor const& tensor, int source, int tag) {
  run({"receive", tensor.size(), tensor.dtype(), -1, source}, [&] { inner_->receive(tensor, source, tag); });
}

void DecoratedBackend::barrier() {
  run({"barrier"}, [&] { inner_->barrier(); });
}

std::unique_ptr<TransferBackend> DecoratedBackend::start_send(Tensor const& tensor, int destination, int tag) {
  return start({"send", tensor.size(), tensor.dtype(), -1, destination},
               [&] { return inner_->start_send(tensor, destination, tag); });
}

std::unique_ptr<TransferBackend> DecoratedBackend::start_receive(Tensor const& tensor, int source, int tag) {
  return start({"receive", tensor.size(), tensor.dtype(), -1, source},
               [&] { return inner_->start_receive(tensor, source, tag); });
}

std::unique_ptr<TransferBackend> DecoratedBackend::start_all_gather(Tensor const& input, Tensor const& output) {
  return start({"start_all_gather", output.size(), output.dtype()},
               [&] { return inner_->start_all_gather(input, output); });
}

std::unique_ptr<TransferBackend> DecoratedBackend::start_all_reduce(Tensor const& tensor, ReduceOp op) {
  return start({"start_all_reduce", tensor.size(), tensor.dtype(), static_cast<int>(op)},
               [&] { return inner_->start_all_reduce(tensor, op); });
}

std::unique_ptr<TransferBackend> DecoratedBackend::start_reduce_scatter(Tensor const& input, Tensor const& output,
                                                                        ReduceOp op) {
  return start({"start_reduce_scatter", input.size(), input.dtype(), static_cast<int>(op)},
               [&] { return inner_->start_reduce_scatter(input, output, op); });
}

std::shared_ptr<CommunicatorBackend> DecoratedBackend::split(int color, int key, std::string const& name) {
  return run({"split"}, [&] { return decorate(inner_->split(color, key, name), color, name); });
}

}  // namespace heddle
