#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/dist/report/rehearsal.hpp>
#include <optional>

namespace heddle {

namespace {

/// A group in which only this rank exists.
class IdleBackend : public CommunicatorBackend {
 public:
  IdleBackend(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool reads(MemorySpace) const override { return true; }  // so that nothing is staged
  std::unique_ptr<TransferBackend> run(VerbCall const&) override { return nullptr; }
  std::shared_ptr<CommunicatorBackend> split(int, int, std::string const&) override {
    throw Error("split: the other ranks of a rehearsal are not there to say their colours");
  }

 private:
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

void KeptByKernels::add(KernelCall const& call) {
  if (call.kept.bytes > 0) {
    bytes_by_name_[call.kept.name] = static_cast<std::int64_t>(call.kept.bytes);
  }
}

std::int64_t KeptByKernels::bytes() const {
  std::int64_t sum = 0;
  for (auto const& [name, bytes] : bytes_by_name_) {
    sum += bytes;
  }
  return sum;
}

struct RehearsedRank::State {
  State(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary, Registries const& registries,
        KernelObserver& observer)
      : kernels(registries.kernels.rehearsal(observer)),
        dtype(dtype_of(config.train.precision)),
        parallel(idle_parallel_state(mesh, config.parallel)),
        parameters(mesh),
        model({.name = "",
               .model = config.model,
               .dtype = dtype,
               .kernels = {kernels, config.kernels},
               .parallel = parallel,
               .parameters = parameters},
              registries.layers, vocabulary,
              plan_pipeline(describe_model(config.model, registries.layers), config.parallel, vocabulary.target)),
        pipeline(parallel.pipeline, model, KernelSource{kernels, config.kernels}.select<TensorOps>({dtype}), execution,
                 arenas) {
    parameters.arrange();
    Shape const buffer{parameters.size()};
    std::size_t const bytes = static_cast<std::size_t>(parameters.size()) * size_of(parameter_dtype(dtype));
    values.emplace(2 * (bytes + 64), arenas);
    try {
      parameters.bind(values->allocate(parameter_dtype(dtype), buffer),
                      values->allocate(parameter_dtype(dtype), buffer));
    } catch (Error const& error) {  // training would take twice as much, and touch it
      throw ConfigError(fmt::format(
          "rank {}: parameters and gradients of {} together are more than the system grants ({}); smaller layers "
          "(model.d_model, model.d_ff), or parallel.tensor and parallel.pipeline, which divide them, need less",
          mesh.rank(), readable_size(2 * static_cast<std::int64_t>(bytes)), error.what()));
    }
  }

  static constexpr Arena::Kind arenas = Arena::Kind::addresses;

  KernelRegistries kernels;
  DType dtype;
  ParallelState parallel;
  ParameterSet parameters;
  std::optional<Arena> values;
  Arena scratch{Arena::default_capacity(arenas), arenas};
  Execution execution{Kokkos::DefaultExecutionSpace(), scratch};
  Model model;
  Pipeline pipeline;
};

RehearsedRank::RehearsedRank(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary,
                             Registries const& registries, KernelObserver& observer)
    : state_(std::make_unique<State>(config, mesh, vocabulary, registries, observer)) {}

RehearsedRank::~RehearsedRank() = default;

ParallelState const& RehearsedRank::parallel() const {
  return state_->parallel;
}

ParameterSet const& RehearsedRank::parameters() const {
  return state_->parameters;
}

Model const& RehearsedRank::model() const {
  return state_->model;
}

Pipeline& RehearsedRank::pipeline() {
  return state_->pipeline;
}

Execution& RehearsedRank::execution() {
  return state_->execution;
}

GroupMember RehearsedRank::row_split() const {
  ParallelState const& parallel = state_->parallel;
  return parallel.sequence_parallel ? GroupMember{parallel.tensor.rank(), parallel.tensor.size()} : GroupMember{};
}

GroupMember RehearsedRank::context() const {
  return {state_->parallel.context.rank(), state_->parallel.context.size()};
}

}  // namespace heddle
