#pragma once

#include <deque>
#include <functional>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/teacher.hpp>
#include <heddle/dist/optimizer/distributed_optimizer.hpp>
#include <heddle/dist/optimizer/gathered_parameters.hpp>
#include <heddle/dist/pipeline/pipeline.hpp>
#include <optional>
#include <vector>

namespace heddle {

/// Estimates from one step's gradients (McCandlish et al. 2018, appendix A.1). The quotient of the means of both over
/// many steps is the simple noise scale, in target tokens: a batch of about that size learns half as much from a token
/// as a small one.
struct GradientNoise {
  double variance = 0;  ///< trace of the covariance of one target token's gradient; 0: not measured
  double square = 0;    ///< of the norm of the gradient of all data
};

struct StepResult {
  double loss = 0;           ///< smoothed, per target token of the global batch
  double gradient_norm = 0;  ///< before clipping
  double nll = 0;  ///< negative log-likelihood, as `loss`: without label smoothing and z-loss, as validation has it
  GradientNoise noise{};
  std::vector<ExpertLoad> expert_loads{};  ///< of all stages' mixtures; empty if the loss is not finite
  std::vector<double> group_nll{};  ///< its sums for each of the batch's groups of samples; empty where there are none
};

/// A model on a mesh and everything that trains it: this rank's parts and parameters, the pipeline, the optimizer. The
/// engine runs the micro-batches of a step, which a MicroBatchSource provides. `step`, `accumulate`, `update` and
/// `evaluate` are collective over the world.
class TrainingEngine {
 public:
  struct Setup {
    Config const& config;
    Registries const& registries;
    ParallelState const& parallel;
    Execution& execution;
    VocabularySizes vocabulary;
    DType dtype = DType::float32;      ///< dtype of activations; with bfloat16 parameters are float32
    WorkObserver* observer = nullptr;  ///< observes passes, layers and waiting; null: none
    /// The size of a bucket of gradients, of which each rank sends every other replica its part; none:
    /// GradientReducer::bucket_for.
    std::optional<std::int64_t> bucket_elements = std::nullopt;
    bool split_backward = false;  ///< also where there is one stage, as parallel.zero_bubble does for several
  };

  /// Leaves values uninitialised: parameters().initialize or a checkpoint fills them. Throws ConfigError for an
  /// impossible layout. Setup's references must outlive the engine.
  explicit TrainingEngine(Setup const& setup);

  ParameterSet& parameters() { return parameters_; }
  ParameterSet const& parameters() const { return parameters_; }
  Model const& model() const { return *model_; }
  /// The configuration's teachers, whose values whoever made the engine sets; none on stages without the loss.
  std::deque<Teacher>& teachers() { return teachers_; }
  PipelinePlan const& plan() const { return plan_; }
  Pipeline& pipeline() { return *pipeline_; }
  DistributedOptimizer& optimizer() { return *optimizer_; }
  DistributedOptimizer const& optimizer() const { return *optimizer_; }
  /// Null where every replica has all parameters.
  GatheredParameters* gathered() { return gathered_ ? &*gathered_ : nullptr; }
  KernelRegistries const& kernels() const { return setup_.registries.kernels; }
  /// This rank's share of the stream's rows in training.
  GroupMember row_split() const { return row_split_; }
  /// This rank's place among those that divide each sequence's tokens.
  ContextSplit context() const { return context_split(setup_.parallel.mesh); }

  /// Makes one optimizer step on a global batch: accumulate, then update. `steps_done` counts the updates before, for
  /// random numbers and Adam. If the loss or the norm is not finite nothing is changed; a loss that is not finite is
  /// also returned as the norm. The result is the same on every rank. With GradientsAfter::zero nobody may read the
  /// gradients afterwards.
  StepResult step(MicroBatchSource const& batch, std::int64_t steps_done, double learning_rate,
                  GradientsAfter after = GradientsAfter::kept);
  /// Runs forward and backward of the whole batch: its gradients, reduced. `batch` has this data rank's micro-batches
  /// or, if train.deterministic is set, all. Returns the smoothed loss per target token, the same on every rank.
  double accumulate(MicroBatchSource const& batch, std::int64_t steps_done);
  /// Applies the gradients; `step` is 1 for the first update. Returns the gradient's norm before clipping; if it is
  /// not finite nothing is changed.
  double update(double learning_rate, std::int64_t step) { return optimizer_->update(learning_rate, step); }
  /// Computes the losses without dropout, over all of the source's micro-batches, which are the same on every rank and
  /// are divided among the data group. The sums are the same on every rank and for any number of data ranks;
  /// `smoothed` is 0. `between`, if there is one, is called by all ranks together after every few micro-batches; where
  /// it throws on all of them, the rest is left out.
  LossSums evaluate(MicroBatchSource const& micro_batches, std::function<void()> const& between = {});

 private:
  LayerSpec layer_spec();
  void find_mixtures();
  /// Whether the noise of gradients is measured: the data ranks' gradients are then those of parts of the batch.
  bool measures_noise() const;
  GradientNoise noise_of(double squares_of_parts, double norm, double tokens) const;
  /// Leaves the gradients and the loss reduced, in kernels' memory.
  void launch(MicroBatchSource const& batch, std::int64_t steps_done);
  void train(MicroBatchSource const& batch, PipelineStep const& step);
  /// The micro-batches of a deterministic step, each by itself.
  void train_one_by_one(MicroBatchSource const& batch, PipelineStep step);
  void train_in_rounds(MicroBatchSource const& batch, PipelineStep step);
  void reduce();
  /// The rows of all passes that predict a token, over which losses and gradients are means.
  double predicted_tokens(MicroBatchSource const& batch) const;
  /// The step's choices in the mixtures of all stages. Those of this stage change its biases if the step made an
  /// `update`. Collective over the world.
  std::vector<ExpertLoad> balance_experts(bool update, std::int64_t steps_done);
  /// The sums of the last step's losses for each of the batch's groups. Collective over the world.
  std::vector<double> group_sums(SampleGroups const& groups);

  Setup setup_;
  GroupMember row_split_;
  PipelinePlan plan_;
  ParameterSet parameters_;
  std::optional<Model> model_;
  std::deque<Teacher> teachers_;
  std::optional<Pipeline> pipeline_;
  std::optional<GatheredParameters> gathered_;
  std::optional<ScatteredTrees> trees_;  ///< of a deterministic run whose replicas divide parameters
  std::optional<DistributedOptimizer> optimizer_;
  std::shared_ptr<TensorOps> tensor_ops_;
  RowLosses row_losses_;
  std::vector<ExpertLoad> mixtures_;  ///< of all stages, stage after stage, with the numbers of their experts
  std::size_t first_choice_ = 0;      ///< the place of this stage's ParameterSet::choice_sums among those of all
  Tensor results_;                    ///< float64 [3 or 4]: the two that follow, so that one copy fetches both
  /// [2]: a step's smoothed loss and its negative log-likelihood. [3] where train.noise_scale is measured: the sum over
  /// the data ranks of the squared norm of each one's gradient, too.
  Tensor loss_sums_;
  Tensor sum_of_squares_;  ///< [1]: of gradients, this rank's part
};

/// Runs steps so that none with a loss or norm that is not finite counts. Such a step has changed nothing, so it is run
/// again: a flipped bit does not come twice. If it repeats, its batch is to be skipped. The decisions depend only on
/// the results, which are the same on every rank.
class FiniteSteps {
 public:
  /// The number of batches skipped in a row after which a run is to end.
  static constexpr int max_skipped = 3;

  struct Outcome {
    StepResult result;
    bool repeated = false;  ///< it was run twice
    bool skipped = false;   ///< and was not finite in the second run, either
  };

  /// `step` is called once or twice with the same batch. Collective as `step` is.
  Outcome run(std::function<StepResult()> const& step);
  /// True after max_skipped batches in a row were skipped.
  bool too_many_skipped() const { return skipped_in_a_row_ >= max_skipped; }

 private:
  int skipped_in_a_row_ = 0;
};

}  // namespace heddle
