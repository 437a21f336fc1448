#pragma once

#include <heddle/dist/state/whole_model.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/text/tokenizer.hpp>

namespace heddle {

/// A copy on the host of all that a checkpoint holds. The spans of `contents.tensors` refer into `tensors`.
struct CheckpointCopy {
  std::vector<WholeTensor> tensors;
  CheckpointContents contents;
};

/// The content of a checkpoint of this moment; `tensors` are those that gather_whole_tensors has brought to this rank.
CheckpointCopy copy_for_checkpoint(TrainingState const& state, Config const& config, Vocabulary const& vocabulary,
                                   std::vector<WholeTensor> tensors);

/// Reads this rank's part of every parameter and of the moments that it keeps; the layout may be another than the one
/// that wrote. DataError names a parameter that is missing, superfluous or of another shape.
void load_training_state(Checkpoint const& checkpoint, WholeModel const& model, ParameterSet& parameters,
                         DistributedOptimizer& optimizer);

/// ConfigError where going on from `checkpoint` with `config` would not be the same run: another model, another order
/// of the data; DataError where the vocabulary is another one.
void check_same_run(Checkpoint const& checkpoint, Config const& config, Vocabulary const& vocabulary);

/// "section.key = new, before old" for each key that a run going on from `checkpoint` has changed.
std::vector<std::string> changed_keys(Checkpoint const& checkpoint, Config const& config);

}  // namespace heddle
