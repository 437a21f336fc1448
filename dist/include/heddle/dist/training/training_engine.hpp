#pragma once

#include <functional>
#include <heddle/core/layers/registries.hpp>
#include <heddle/dist/optimizer/distributed_optimizer.hpp>
#include <heddle/dist/pipeline/pipeline.hpp>

namespace heddle {

/// A global batch as this rank meets it.
struct TrainingBatch {
  /// This data rank's micro-batches or, in deterministic mode, those of the whole batch, the same on every rank.
  std::int64_t micro_batches = 0;
  /// Micro-batch `index` of those, this context rank's part of it.
  std::function<Pack(std::int64_t index)> make_pack;
  std::int64_t target_tokens = 0;  ///< of the whole batch: losses and gradients are divided by it
  std::uint32_t step = 0;          ///< steps done before, for random numbers
};

/// A model on a mesh and what trains it: this rank's parts and parameters, the pipeline, the optimizer. `accumulate`
/// and `update` are collective over the world.
class TrainingEngine {
 public:
  struct Setup {
    Config const& config;
    Registries const& registries;
    ParallelState const& parallel;
    Execution& execution;
    VocabularySizes vocabulary;
    DType dtype = DType::float32;  ///< of activations; parameters are float32 beside bfloat16
  };

  /// Values are left uninitialised: parameters().initialize or a checkpoint fills them. Throws ConfigError for a layout
  /// that cannot be. Setup's references must outlive the engine.
  explicit TrainingEngine(Setup const& setup);

  ParameterSet& parameters() { return parameters_; }
  ParameterSet const& parameters() const { return parameters_; }
  EncoderDecoder const& model() const { return model_; }
  PipelinePlan const& plan() const { return plan_; }
  Pipeline& pipeline() { return pipeline_; }
  DistributedOptimizer& optimizer() { return optimizer_; }
  DistributedOptimizer const& optimizer() const { return optimizer_; }
  /// Which rows of the stream training holds here.
  GroupMember row_split() const { return row_split_; }
  /// Which of a sequence's tokens training holds here.
  GroupMember context() const { return {setup_.parallel.context.rank(), setup_.parallel.context.size()}; }

  /// Forward and backward of the whole batch: its gradients, reduced. Returns the smoothed loss per target token, the
  /// same on every rank.
  double accumulate(TrainingBatch const& batch);
  /// Applies them; `step` is 1 for the first update. Returns the gradient's norm before clipping; where it is not
  /// finite nothing is changed.
  double update(double learning_rate, std::int64_t step) { return optimizer_.update(learning_rate, step); }

 private:
  LayerSpec layer_spec();
  void train(PipelineStep const& step, std::int64_t first, std::int64_t count);

  Setup setup_;
  GroupMember row_split_;
  PipelinePlan plan_;
  ParameterSet parameters_;
  EncoderDecoder model_;
  Pipeline pipeline_;
  DistributedOptimizer optimizer_;
  Tensor loss_sum_;  ///< float64 [1]: a step's smoothed loss
};

}  // namespace heddle
