#pragma once

#include <heddle/dist/planning/memory_plan.hpp>
#include <heddle/dist/state/model_stream.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "run/checkpoints/initialization.hpp"
#include "training/trainer_setup.hpp"

namespace heddle {

/// The model that a run trains, and where its values come from.
class RunModel {
 public:
  /// Builds the model, without values, and reserves the memory of its plan if the configuration says so. Throws
  /// ConfigError where a host has not that much, as TrainingEngine does, and for patterns of names that fit no
  /// parameter. Collective over the world.
  RunModel(TrainerSetup const& setup, VocabularySizes const& vocabulary, MemoryPlan const& plan);
  RunModel(RunModel const&) = delete;
  RunModel& operator=(RunModel const&) = delete;

  TrainingEngine& engine() { return engine_; }
  TrainingEngine const& engine() const { return engine_; }
  WholeModel const& whole() const { return whole_; }
  /// "12,345 parameters (2,345 of them frozen)".
  std::string describe() const;

  /// Sets the values with which a new run starts: random ones, then those of another run, if there is one.
  void initialize(Initialization const* from);
  /// Sets the values and the state of the optimizer. Returns messages about state that starts at zero. Collective over
  /// the world.
  std::vector<std::string> load(Checkpoint const& checkpoint);
  /// Trains the parameters that the configuration unfreezes after `updates` updates or fewer, and no others that it
  /// freezes. Returns a message where that changes anything, or "". Collective over the world.
  std::string unfreeze(std::int64_t updates);

  /// The tensors of a checkpoint.
  ModelStream stream() const;
  /// The tensors of checkpoints when all parameters are trained that ever are.
  std::vector<StreamedTensor> largest_tensors() const;
  /// Sets what a checkpoint says about its tensors.
  void describe_in(CheckpointContents& contents) const;

 private:
  /// The parameters that are left to the base.
  std::set<std::string> left_out() const;

  Config const& config_;
  ParallelState const& parallel_;
  TrainingEngine engine_;
  WholeModel whole_;
  std::map<std::string, std::string> origin_;  ///< CheckpointContents::origin
  CheckpointBase base_;                        ///< CheckpointContents::base
  std::int64_t unfrozen_ = 0;                  ///< the argument of the last call of unfreeze
};

}  // namespace heddle
