#include <heddle/core/base/error.hpp>
#include <heddle/dist/report/rehearsal.hpp>

namespace heddle {

namespace {

class IdleTransfer : public TransferBackend {
 public:
  bool progress() override { return true; }
  void wait() override {}
};

/// A group in which only this rank exists.
class IdleBackend : public CommunicatorBackend {
 public:
  IdleBackend(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(Tensor const&, ReduceOp) override {}
  void reduce_scatter(Tensor const&, Tensor const&, ReduceOp) override {}
  void reduce_scatter_uneven(Tensor const&, Tensor const&, Counts) override {}
  void all_gather(Tensor const&, Tensor const&) override {}
  void all_gather_uneven(Tensor const&, Tensor const&, Counts) override {}
  void all_to_all(Tensor const&, Tensor const&) override {}
  void all_to_all_uneven(Tensor const&, Counts, Tensor const&, Counts) override {}
  void broadcast(Tensor const&, int) override {}
  void receive(Tensor const&, int, int) override {}
  void barrier() override {}
  std::unique_ptr<TransferBackend> start_send(Tensor const&, int, int) override { return done(); }
  std::unique_ptr<TransferBackend> start_receive(Tensor const&, int, int) override { return done(); }
  std::unique_ptr<TransferBackend> start_all_gather(Tensor const&, Tensor const&) override { return done(); }
  std::unique_ptr<TransferBackend> start_all_reduce(Tensor const&, ReduceOp) override { return done(); }
  std::unique_ptr<TransferBackend> start_reduce_scatter(Tensor const&, Tensor const&, ReduceOp) override {
    return done();
  }
  std::shared_ptr<CommunicatorBackend> split(int, int, std::string const&) override {
    throw Error("split: the other ranks of a rehearsal are not there to say their colours");
  }

 private:
  static std::unique_ptr<TransferBackend> done() { return std::make_unique<IdleTransfer>(); }

  int rank_;
  int size_;
};

}  // namespace

ParallelState idle_parallel_state(Mesh const& mesh, ParallelConfig const& config) {
  auto const group = [](int rank, int size) {
    return size == 1 ? Communicator::self() : Communicator(std::make_shared<IdleBackend>(rank, size));
  };
  auto const along = [&](MeshAxis axis) { return group(mesh.coordinate(axis), mesh.size(axis)); };
  ParallelState state;
  state.mesh = mesh;
  state.world = group(mesh.rank(), mesh.size(MeshAxis::pipeline) * mesh.size(MeshAxis::data) *
                                       mesh.size(MeshAxis::context) * mesh.size(MeshAxis::tensor));
  state.pipeline = along(MeshAxis::pipeline);
  state.data = along(MeshAxis::data);
  state.context = along(MeshAxis::context);
  state.tensor = along(MeshAxis::tensor);
  state.replicas =
      group(mesh.coordinate(MeshAxis::data) * mesh.size(MeshAxis::context) + mesh.coordinate(MeshAxis::context),
            mesh.size(MeshAxis::data) * mesh.size(MeshAxis::context));
  state.sequence_parallel = config.sequence_parallel;
  state.context_mode = config.context_mode;
  return state;
}

}  // namespace heddle
