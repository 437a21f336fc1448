#include <algorithm>
#include <fstream>
#include <heddle/core/model/model.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/dist/report/memory_plan.hpp>
#include <heddle/dist/report/rehearsal.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <map>
#include <optional>
#include <string>

namespace heddle {

namespace {

/// More micro-batches than this need no more memory.
constexpr std::int64_t most_micro_batches = 256;

std::int64_t divided_up(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

/// A micro-batch with this many tokens on both sides, in sequences as long as possible.
Pack full_pack(std::int64_t tokens, std::int64_t max_length, GroupMember split) {
  std::vector<SentencePair> pairs;
  for (std::int64_t left = tokens; left > 0; left -= max_length) {
    std::vector<std::int32_t> const sentence(static_cast<std::size_t>(std::min(left, max_length) - 1), 0);
    pairs.push_back({static_cast<std::int32_t>(pairs.size()), sentence, sentence});
  }
  constexpr SpecialIds any{.begin = 0, .end = 0};  // sizes alone count
  Pack pack = make_pack(pairs, {any, any}, split);
  pack.source_output.id = pack.source.id;  // an encoder alone predicts something, too
  return pack;
}

/// One micro-batch, repeated.
class Repeated final : public MicroBatchSource {
 public:
  Repeated(Pack pack, std::int64_t count) : pack_(std::move(pack)), count_(count) {}

  std::int64_t count() const override { return count_; }
  BatchTokens tokens() const override { return {1, 1}; }
  Pack micro_batch(std::int64_t /*index*/) const override { return pack_; }

 private:
  Pack pack_;
  std::int64_t count_;
};

/// Adds up the memory that the kernels of a rehearsal's calls would keep.
class KeptByKernels final : public KernelObserver {
 public:
  void observe(Execution& execution, KernelCall const& call) override {
    static_cast<void>(execution);
    if (call.kept.bytes > 0) {
      bytes_by_name_[call.kept.name] = static_cast<std::int64_t>(call.kept.bytes);
    }
  }

  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (auto const& [name, bytes] : bytes_by_name_) {
      sum += bytes;
    }
    return sum;
  }

 private:
  std::map<std::string, std::int64_t> bytes_by_name_;
};

/// A rank's model in groups whose other ranks do not exist, with kernels that compute nothing. Its parameters only
/// reserve addresses.
class Rehearsal {
 public:
  Rehearsal(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary, Registries const& registries)
      : config_(config),
        kernels_(registries.kernels.rehearsal(kept_)),
        dtype_(dtype_of(config.train.precision)),
        parallel_(idle_parallel_state(mesh, config.parallel)),
        parameters_(mesh),
        model_({.name = "",
                .model = config.model,
                .dtype = dtype_,
                .kernels = kernels(),
                .parallel = parallel_,
                .parameters = parameters_},
               registries.layers, vocabulary,
               plan_pipeline(describe_model(config.model, registries.layers), config.parallel, vocabulary.target)),
        pipeline_(parallel_.pipeline, model_, kernels().select<TensorOps>({dtype_}), execution_) {
    parameters_.arrange();
    Shape const buffer{parameters_.size()};
    std::size_t const bytes = static_cast<std::size_t>(parameters_.size()) * size_of(parameter_dtype(dtype_));
    values_.emplace(2 * (bytes + 64));
    parameters_.bind(values_->allocate(parameter_dtype(dtype_), buffer),
                     values_->allocate(parameter_dtype(dtype_), buffer));
  }

  MemoryPlan run() {
    auto const element = static_cast<std::int64_t>(size_of(parameter_dtype(dtype_)));
    std::int64_t const buffer = parameters_.size() * element;
    MemoryUse use{.parameters = buffer, .gradients = buffer, .moments = 2 * moments() * element};
    PipelineMemory pipeline = rehearse();
    use.activations = static_cast<std::int64_t>(pipeline.total());
    use.kernels = kept_.bytes();  // once the step has made its calls
    return {use, std::move(pipeline)};
  }

 private:
  KernelSource kernels() const { return {kernels_, config_.kernels}; }

  /// The number of elements of one of them.
  std::int64_t moments() const {
    if (!config_.parallel.shard_optimizer) {
      return parameters_.size();
    }
    BufferParts const parts(placed_parameters(parameters_), GradientReducer::default_bucket, parallel_.replicas.size());
    std::int64_t elements = 0;
    for (IndexRange const& part : parts.parts_of(parallel_.replicas.rank())) {
      elements += part.count();
    }
    return elements;
  }

  PipelineMemory rehearse() {
    bool const deterministic = config_.train.deterministic;
    std::int64_t const data = deterministic ? 1 : parallel_.data.size();
    std::int64_t const tokens = divided_up(config_.train.batch_tokens, data);
    std::int64_t const most_tokens = std::min(tokens, config_.train.micro_batch_tokens);
    Communicator const& context = parallel_.context;
    // In deterministic mode each micro-batch passes the pipeline separately.
    std::int64_t const trained = deterministic ? 1 : std::min(divided_up(tokens, most_tokens), most_micro_batches);
    std::int64_t const evaluated = 2 * parallel_.pipeline.size();
    Repeated const packs(full_pack(most_tokens, config_.model.max_length, {context.rank(), context.size()}),
                         std::max(trained, evaluated));
    GroupMember row_split;
    if (parallel_.sequence_parallel) {
      row_split = {parallel_.tensor.rank(), parallel_.tensor.size()};
    }
    PipelineStep step{.micro_batches = {0, trained},
                      .loss = {.label_smoothing = config_.train.label_smoothing, .z_loss = config_.train.z_loss},
                      .seed = config_.train.seed,
                      .step = 0,
                      .row_split = row_split};
    pipeline_.train(packs, step);
    if (config_.train.validate_every > 0) {
      step.micro_batches = {0, evaluated};
      pipeline_.evaluate(packs, step);
    }
    return pipeline_.peak_memory();
  }

  Config const& config_;
  KeptByKernels kept_;
  KernelRegistries kernels_;
  DType dtype_;
  ParallelState parallel_;
  ParameterSet parameters_;
  std::optional<Arena> values_;
  Arena scratch_;
  Execution execution_{Kokkos::DefaultExecutionSpace(), scratch_};
  Model model_;
  Pipeline pipeline_;
};

}  // namespace

MemoryUse& MemoryUse::operator+=(MemoryUse const& more) {
  parameters += more.parameters;
  gradients += more.gradients;
  moments += more.moments;
  kernels += more.kernels;
  activations += more.activations;
  return *this;
}

MemoryPlan plan_memory(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary,
                       Registries const& registries) {
  return Rehearsal(config, mesh, vocabulary, registries).run();
}

MemoryUse measure_memory(TrainingEngine& engine) {
  return {.parameters = engine.parameters().values().bytes(),
          .gradients = engine.parameters().gradients().bytes(),
          .moments = engine.optimizer().moment_bytes(),
          .kernels = static_cast<std::int64_t>(engine.kernels().kept_bytes()),
          .activations = static_cast<std::int64_t>(engine.pipeline().peak_memory().total())};
}

std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") {
      std::int64_t kibibytes = 0;
      status >> kibibytes;
      return kibibytes * 1024;
    }
  }
  return 0;
}

}  // namespace heddle
