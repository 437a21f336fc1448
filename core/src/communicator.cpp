#include <fmt/format.h>

#include <cstring>
#include <heddle/core/communicator.hpp>
#include <heddle/core/error.hpp>
#include <vector>

namespace heddle {

namespace {

void require_contiguous(Tensor const& tensor, char const* verb) {
  if (tensor.empty() || !tensor.contiguous()) {
    throw Error(fmt::format("{}: a contiguous tensor is needed", verb));
  }
}

void require_parts(Tensor const& whole, Tensor const& part, int parts, char const* verb) {
  require_contiguous(whole, verb);
  require_contiguous(part, verb);
  if (whole.dtype() != part.dtype() || whole.size() != part.size() * parts) {
    throw Error(fmt::format("{}: {} {} is not {} parts of {} {}", verb, name_of(whole.dtype()),
                            whole.shape().to_string(), parts, name_of(part.dtype()), part.shape().to_string()));
  }
}

void require_rank(int rank, int size, char const* verb) {
  if (rank < 0 || rank >= size) {
    throw Error(fmt::format("{}: there is no rank {} among {}", verb, rank, size));
  }
}

/// What every data-moving verb is among one rank.
void copy_to_self(Tensor const& input, Tensor const& output) {
  std::vector<unsigned char> host(static_cast<std::size_t>(input.bytes()));
  copy_to_host(host.data(), input);
  copy_from_host(output, host.data());
}

}  // namespace

void Communicator::all_reduce(Tensor const& tensor, ReduceOp op) const {
  require_contiguous(tensor, "all_reduce");
  if (backend_) {
    backend_->all_reduce(tensor, op);
  }
}

void Communicator::reduce_scatter(Tensor const& input, Tensor const& output, ReduceOp op) const {
  require_parts(input, output, size(), "reduce_scatter");
  backend_ ? backend_->reduce_scatter(input, output, op) : copy_to_self(input, output);
}

void Communicator::all_gather(Tensor const& input, Tensor const& output) const {
  require_parts(output, input, size(), "all_gather");
  backend_ ? backend_->all_gather(input, output) : copy_to_self(input, output);
}

void Communicator::all_to_all(Tensor const& input, Tensor const& output) const {
  require_parts(output, input, 1, "all_to_all");
  if (input.size() % size() != 0) {
    throw Error(fmt::format("all_to_all: {} elements do not divide among {} ranks", input.size(), size()));
  }
  backend_ ? backend_->all_to_all(input, output) : copy_to_self(input, output);
}

void Communicator::broadcast(Tensor const& tensor, int root) const {
  require_contiguous(tensor, "broadcast");
  require_rank(root, size(), "broadcast");
  if (backend_) {
    backend_->broadcast(tensor, root);
  }
}

void Communicator::send(Tensor const& tensor, int destination, int tag) const {
  require_contiguous(tensor, "send");
  require_rank(destination, size(), "send");
  if (!backend_) {
    throw Error("send: a communicator of one rank has nobody to send to");
  }
  backend_->send(tensor, destination, tag);
}

void Communicator::receive(Tensor const& tensor, int source, int tag) const {
  require_contiguous(tensor, "receive");
  require_rank(source, size(), "receive");
  if (!backend_) {
    throw Error("receive: a communicator of one rank has nobody to receive from");
  }
  backend_->receive(tensor, source, tag);
}

void Communicator::barrier() const {
  if (backend_) {
    backend_->barrier();
  }
}

Communicator Communicator::split(int color, int key) const {
  return backend_ ? Communicator(backend_->split(color, key)) : self();
}

ParallelState make_parallel_state(Communicator const& world, Mesh const& mesh) {
  auto const group = [&](MeshAxis axis) { return world.split(mesh.color(axis), mesh.coordinate(axis)); };
  return {
      mesh, world, group(MeshAxis::pipeline), group(MeshAxis::data), group(MeshAxis::context), group(MeshAxis::tensor)};
}

}  // namespace heddle
