#pragma once

#include <heddle/core/optimizer.hpp>
#include <heddle/io/checkpoint.hpp>
#include <heddle/io/tokenizer.hpp>

namespace heddle {

/// A copy on the host of all that a checkpoint holds. `tensors` of `contents` refer into `elements`.
struct CheckpointCopy {
  CheckpointContents contents;
  std::vector<std::vector<float>> elements;
};

/// What a checkpoint of this moment is. Parameters are whole on this rank (the mesh has no tensor or pipeline axis
/// yet).
CheckpointCopy copy_for_checkpoint(TrainingState const& state, Config const& config, Vocabulary const& vocabulary,
                                   ParameterSet const& parameters, Optimizer const& optimizer);

/// Reads this rank's part of every parameter and its moments. DataError names a parameter that is missing, superfluous
/// or of another shape.
void load_training_state(Checkpoint const& checkpoint, ParameterSet& parameters, Optimizer const& optimizer);

/// ConfigError where going on from `checkpoint` with `config` would not be the same run: another model, another order
/// of the data; DataError where the vocabulary is another one.
void check_same_run(Checkpoint const& checkpoint, Config const& config, Vocabulary const& vocabulary);

/// "section.key = new, before old" for each key that a run going on from `checkpoint` has changed.
std::vector<std::string> changed_keys(Checkpoint const& checkpoint, Config const& config);

}  // namespace heddle
