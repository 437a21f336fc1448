#pragma once

#include <functional>
#include <heddle/core/model/encoder_decoder.hpp>
#include <heddle/dist/pipeline/times.hpp>
#include <memory>
#include <vector>

namespace heddle {

class ArenaSlots;

/// What a step's micro-batches have in common. The stages of a pipeline give the same.
struct PipelineStep {
  std::int64_t micro_batches = 0;
  /// Micro-batch `index` of this step; called once for each, on every stage, in order, shortly before it is needed.
  std::function<Pack(std::int64_t index)> make_pack;
  OutputLoss::Training loss;
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  GroupMember row_split{};
  /// Called on the last stage with each micro-batch's loss.
  std::function<void(std::int64_t index, LossSums const& loss)> on_loss = {};
};

/// Runs a step's micro-batches through the stages of a model (one is enough), by 1F1B or, where a stage holds two
/// parts, interleaved: see training_actions. Activations travel forward and their gradients back as messages over the
/// pipeline group, posted ahead and sent without waiting. Keeps references to the model and the execution, and keeps
/// its memory from step to step.
class Pipeline {
 public:
  Pipeline(Communicator const& pipeline, EncoderDecoder const& model, std::shared_ptr<TensorOps> tensor_ops,
           Execution& execution);
  ~Pipeline();
  Pipeline(Pipeline const&) = delete;
  Pipeline& operator=(Pipeline const&) = delete;

  /// Forward and backward of every micro-batch; parameter gradients +=, micro-batch after micro-batch. Returns the loss
  /// sums of all micro-batches on the last stage, zeros elsewhere. Collective over the pipeline, tensor and context
  /// groups.
  LossSums train(PipelineStep const& step);
  /// The loss alone, without dropout; step.loss.scale is not read. As train.
  LossSums evaluate(PipelineStep const& step);

  /// What this rank did in the last train or evaluate, in order.
  std::vector<PipelineEvent> const& events() const { return events_; }
  /// The most bytes ever taken for activations, messages and a backward pass's own tensors together.
  std::size_t peak_bytes() const;

 private:
  class Run;

  Communicator pipeline_;
  EncoderDecoder const& model_;
  std::shared_ptr<TensorOps> tensor_ops_;
  Execution& execution_;
  std::unique_ptr<ArenaSlots> activations_;  ///< of each forward whose backward is to come
  std::unique_ptr<ArenaSlots> messages_;     ///< what comes, and what leaves a backward or an evaluating pass
  Arena temporary_;                          ///< what one backward pass alone needs
  std::vector<PipelineEvent> events_;
};

}  // namespace heddle
