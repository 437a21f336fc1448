#pragma once

#include <algorithm>
#include <heddle/core/model/model.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/dist/pipeline/row_losses.hpp>
#include <heddle/dist/pipeline/schedule.hpp>
#include <memory>
#include <vector>

namespace heddle {

class ArenaSlots;

/// A pass of micro-batches through the pipeline, with their common settings, the same on all stages.
struct PipelineStep {
  /// The source's micro-batches. Each is read once, on every stage, in order, shortly before it is needed.
  IndexRange micro_batches;
  /// With `access`: the number of micro-batches of the replica that has most. For those that this one lacks it only
  /// gathers parameters with the others, and computes its experts for them (ModelChunk::attend).
  std::int64_t max_micro_batches = 0;
  OutputLoss::Training loss;  ///< `sums` is not read
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  GroupMember row_split{};
  /// Follows the last micro-batch of training; may be null.
  GradientProgress* gradients = nullptr;
  /// Gathers parameters; null where every replica has all.
  ParameterAccess* access = nullptr;
  /// Is notified of passes and of waiting for their input; may be null.
  WorkObserver* observer = nullptr;
  /// Gets the losses of the rows of training that are computed here; may be null.
  RowLosses* row_losses = nullptr;

  /// The number of micro-batches that the schedule is for.
  std::int64_t rounds() const { return std::max(micro_batches.count(), access != nullptr ? max_micro_batches : 0); }
};

/// The maximum bytes that each of a pipeline's arenas held; arenas of a kind are in the order of their first use.
struct PipelineMemory {
  std::vector<std::size_t> activations;  ///< bytes of forward passes whose backward pass is not complete
  std::vector<std::size_t> messages;     ///< inputs, and outputs of a backward or an evaluating pass
  std::size_t temporary = 0;             ///< bytes of one backward pass alone

  std::size_t total() const;
};

/// The capacity of an arena that is planned to hold at most `planned_bytes`: an eighth and 64 KiB more, because real
/// micro-batches differ from the largest that is planned for in the number and lengths of their sequences.
std::size_t with_margin(std::size_t planned_bytes);

/// Runs a step's micro-batches through the stages of a model (at least one), by 1F1B or, if a stage has two parts,
/// interleaved, with backward passes split or not: see training_actions. Activations travel forward and their gradients
/// back as messages over the pipeline group, with receives posted ahead and non-blocking sends. Keeps references to the
/// model and the execution, and keeps its memory from step to step.
class Pipeline {
 public:
  struct Options {
    bool split_backward = false;               ///< see training_actions; the same on all stages
    Arena::Kind arenas = Arena::Kind::memory;  ///< `addresses` for a model whose kernels compute nothing
  };

  Pipeline(Communicator const& pipeline, Model const& model, std::shared_ptr<TensorOps> tensor_ops,
           Execution& execution, Options const& options);
  ~Pipeline();

  PipelinePosition place() const;

  /// Computes forward and backward of every micro-batch; parameter gradients +=, one micro-batch after the other.
  /// Returns the micro-batches' loss sums, in kernels' memory, so that nothing waits for the kernels: [micro-batches,
  /// SoftmaxCrossEntropy::sums_size] in float64, valid until the next call. They are those of the last stage's output
  /// and of this stage's layers that have a loss of their own. Collective over the pipeline, tensor and context groups.
  Tensor train(MicroBatchSource const& source, PipelineStep const& step);
  /// Fetches each micro-batch's loss sums on the last stage, zeros elsewhere, computed without dropout; step.loss.scale
  /// is not read. Otherwise as train.
  std::vector<LossSums> evaluate(MicroBatchSource const& source, PipelineStep const& step);

  PipelineMemory peak_memory() const;
  /// Takes this memory from the system now rather than in the first steps; only before the first call of train or
  /// evaluate. On a device each arena then has no more than the largest of its kind and a margin, see with_margin.
  void reserve(PipelineMemory const& memory);

 private:
  class Run;

  Saved take_saved(int part);
  /// [micro_batches, SoftmaxCrossEntropy::sums_size] of zeros, valid until the next call.
  Tensor zeroed_sums(std::int64_t micro_batches);

  Communicator pipeline_;
  Model const& model_;
  std::shared_ptr<TensorOps> tensor_ops_;
  Execution& execution_;
  bool split_backward_;
  std::unique_ptr<ArenaSlots> activations_;  ///< of each forward pass whose backward pass is not complete
  std::unique_ptr<ArenaSlots> messages_;     ///< inputs, and outputs of a backward or an evaluating pass
  Arena temporary_;                          ///< of one backward pass alone
  /// For each part: those that no micro-batch uses; their memory is used again.
  std::vector<std::vector<Saved>> spare_saved_;
  Tensor loss_sums_;  ///< float64: two rows for each micro-batch of the longest step so far, and two
};

}  // namespace heddle
