#include <algorithm>
#include <fstream>
#include <heddle/core/model/model.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/dist/report/memory_plan.hpp>
#include <heddle/dist/report/rehearsal.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <set>
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

/// Notes the selected kernels and the memory that they would keep in a rehearsal's calls.
class RehearsedKernels final : public KernelObserver {
 public:
  void selected(KernelSelection const& selection) override {
    kernels_.insert({std::string(selection.operation), selection.problem, std::string(selection.implementation)});
  }
  void observe(Execution& execution, KernelCall const& call) override {
    static_cast<void>(execution);
    kept_.add(call);
  }

  std::vector<SelectedKernel> kernels() const { return {kernels_.begin(), kernels_.end()}; }
  std::int64_t kept_bytes() const { return kept_.bytes(); }

 private:
  std::set<SelectedKernel> kernels_;
  KeptByKernels kept_;
};

/// A step of one rank, and a validation if there is one.
class Rehearsal {
 public:
  Rehearsal(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary, Registries const& registries)
      : config_(config),
        rank_(config, mesh, vocabulary, registries, kernels_),
        element_(static_cast<std::int64_t>(size_of(parameter_dtype(dtype_of(config.train.precision))))) {}

  MemoryPlan run(BatchSamples const* samples) {
    std::int64_t const buffer = rank_.parameters().size() * element_;
    MemoryUse use{.parameters = buffer, .gradients = buffer, .moments = 2 * moments() * element_};
    if (samples == nullptr) {
      rehearse_largest();
    } else {
      rehearse(*samples);
    }
    PipelineMemory pipeline = rank_.pipeline().peak_memory();
    use.activations = static_cast<std::int64_t>(pipeline.total());
    use.kernels = kernels_.kept_bytes();  // once the step has made its calls
    return {use, std::move(pipeline), kernels_.kernels()};
  }

 private:
  /// The number of elements of one of them.
  std::int64_t moments() const {
    ParameterSet const& parameters = rank_.parameters();
    if (!config_.parallel.shard_optimizer) {
      return parameters.size();
    }
    Communicator const& replicas = rank_.parallel().replicas;
    BufferParts const parts(placed_parameters(parameters), GradientReducer::bucket_for(replicas.size()),
                            replicas.size());
    std::int64_t elements = 0;
    for (IndexRange const& part : parts.parts_of(replicas.rank())) {
      elements += part.count();
    }
    return elements;
  }

  void rehearse_largest() {
    ParallelState const& parallel = rank_.parallel();
    bool const deterministic = config_.train.deterministic;
    std::int64_t const data = deterministic ? 1 : parallel.data.size();
    std::int64_t const tokens = divided_up(config_.train.batch_tokens, data);
    std::int64_t const most_tokens = std::min(tokens, config_.train.micro_batch_tokens);
    // In deterministic mode each micro-batch passes the pipeline separately.
    std::int64_t const trained = deterministic ? 1 : std::min(divided_up(tokens, most_tokens), most_micro_batches);
    std::int64_t const evaluated = 2 * parallel.pipeline.size();
    RepeatedPack const packs(full_pack(most_tokens, config_.model.max_length, rank_.context()),
                             std::max(trained, evaluated));
    train(packs, {0, trained});
    if (config_.train.validate_every > 0) {
      rank_.pipeline().evaluate(packs, step({0, evaluated}));
    }
  }

  void rehearse(BatchSamples const& samples) {
    ParallelState const& parallel = rank_.parallel();
    MicroBatchCut const cut = micro_batch_cut(config_.train, parallel);
    for (int batch = 0; batch < samples.batches(); ++batch) {
      auto const micro_batches = samples.cut(batch, cut);
      if (!config_.train.deterministic) {
        train(*micro_batches, {0, micro_batches->count()});
        continue;
      }
      IndexRange const mine = share(micro_batches->count(), parallel.data.rank(), parallel.data.size());
      for (std::int64_t index = mine.begin; index < mine.end; ++index) {
        train(*micro_batches, {index, index + 1});
      }
    }
  }

  PipelineStep step(IndexRange const& micro_batches) const {
    return {.micro_batches = micro_batches,
            .loss = {.label_smoothing = config_.train.label_smoothing, .z_loss = config_.train.z_loss},
            .seed = config_.train.seed,
            .step = 0,
            .row_split = rank_.row_split()};
  }

  void train(MicroBatchSource const& packs, IndexRange const& micro_batches) {
    rank_.pipeline().train(packs, step(micro_batches));
  }

  Config const& config_;
  RehearsedKernels kernels_;
  RehearsedRank rank_;
  std::int64_t element_;
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
                       Registries const& registries, BatchSamples const* samples) {
  return Rehearsal(config, mesh, vocabulary, registries).run(samples);
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
