#include <heddle/core/base/error.hpp>
#include <heddle/dist/report/rehearsal.hpp>

namespace heddle {

namespace {

class IdleGemm : public Gemm {
 public:
  bool supports(GemmProblem const&) const override { return true; }
  void multiply(Execution&, GemmCall const&) override {}
};

class IdleAttention : public Attention {
 public:
  bool supports(AttentionProblem const&) const override { return true; }
  void forward(Execution&, AttentionCall const&, Tensor const&, Tensor const&) override {}
  void backward(Execution&, AttentionCall const&, Tensor const&, Tensor const&, Tensor const&,
                AttentionGradients const&) override {}
};

class IdleResidualNorm : public ResidualNorm {
 public:
  bool supports(ResidualNormProblem const&) const override { return true; }
  void forward(Execution&, ResidualNormCall const&, ResidualNormOutput const&) override {}
  void backward(Execution&, ResidualNormCall const&, ResidualNormOutput const&, Tensor const&, Tensor const&,
                ResidualNormGradients const&) override {}
};

class IdleActivation : public Activation {
 public:
  bool supports(ActivationProblem const&) const override { return true; }
  void forward(Execution&, ActivationCall const&, Tensor const&) override {}
  void backward(Execution&, ActivationCall const&, Tensor const&, Tensor const&) override {}
};

class IdleSoftmaxCrossEntropy : public SoftmaxCrossEntropy {
 public:
  bool supports(SoftmaxCrossEntropyProblem const&) const override { return true; }
  void statistics(Execution&, SoftmaxCrossEntropyCall const&, Tensor const&) override {}
  void combine(Execution&, Tensor const&, Tensor const&) override {}
  void losses(Execution&, SoftmaxCrossEntropyCall const&, Tensor const&, Tensor const&) override {}
  void gradient(Execution&, SoftmaxCrossEntropyCall const&, Tensor const&, double) override {}
};

class IdleEmbedding : public Embedding {
 public:
  bool supports(EmbeddingProblem const&) const override { return true; }
  void forward(Execution&, EmbeddingCall const&, Tensor const&) override {}
  void backward(Execution&, EmbeddingCall const&, Tensor const&, Tensor const&, Tensor const&) override {}
};

class IdleAdam : public Adam {
 public:
  bool supports(AdamProblem const&) const override { return true; }
  void update(Execution&, AdamCall const&) override {}
};

class IdleTensorOps : public TensorOps {
 public:
  bool supports(TensorOpsProblem const&) const override { return true; }
  void fill(Execution&, Tensor const&, double) override {}
  void add(Execution&, Tensor const&, Tensor const&) override {}
  void copy(Execution&, Tensor const&, Tensor const&) override {}
  void add_column_sums(Execution&, Tensor const&, Tensor const&) override {}
  double sum_of_squares(Execution&, Tensor const&) override { return 0; }
  void gather_rows(Execution&, Tensor const&, Tensor const&, Tensor const&) override {}
};

class IdleTransfer : public TransferBackend {
 public:
  bool progress() override { return true; }
  void wait() override {}
};

/// A group of which this rank alone is there.
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
  std::shared_ptr<CommunicatorBackend> split(int, int) override {
    throw Error("split: the other ranks of a rehearsal are not there to say their colours");
  }

 private:
  static std::unique_ptr<TransferBackend> done() { return std::make_unique<IdleTransfer>(); }

  int rank_;
  int size_;
};

}  // namespace

KernelRegistries idle_kernels() {
  KernelRegistries kernels;
  auto const add = [](auto& registry, auto kernel) { registry.add("idle", 0, std::move(kernel)); };
  add(kernels.gemm, std::make_shared<IdleGemm>());
  add(kernels.attention, std::make_shared<IdleAttention>());
  add(kernels.residual_norm, std::make_shared<IdleResidualNorm>());
  add(kernels.activation, std::make_shared<IdleActivation>());
  add(kernels.softmax_cross_entropy, std::make_shared<IdleSoftmaxCrossEntropy>());
  add(kernels.embedding, std::make_shared<IdleEmbedding>());
  add(kernels.adam, std::make_shared<IdleAdam>());
  add(kernels.tensor_ops, std::make_shared<IdleTensorOps>());
  return kernels;
}

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
