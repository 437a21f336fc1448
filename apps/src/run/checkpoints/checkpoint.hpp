#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/model/description.hpp>
#include <heddle/dist/optimizer/distributed_optimizer.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Loads this rank's part of a parameter's value from the parameter `name` of a checkpoint. It is read piece by
/// piece, in little memory beside the parameters. Throws DataError as Checkpoint::read does.
void load_value(Checkpoint const& checkpoint, std::string const& name, ParameterSet const& parameters,
                Parameter const& parameter);

/// The first names of a list, and how many others there are.
std::string shortened(std::vector<std::string> const& names);

/// This rank's part of every parameter, and the optimizer state that it keeps, as far as the checkpoint has them.
std::vector<TensorSlice> own_slices(Checkpoint const& checkpoint, ParameterSet const& parameters,
                                    DistributedOptimizer const& optimizer);

/// Messages about optimizer state of `tensors` that the checkpoint lacks: it starts at zero, and so does all state of a
/// parameter that lacks some.
std::vector<std::string> new_state(Checkpoint const& checkpoint, std::vector<StreamedTensor> const& tensors);

/// Reads this rank's part of every parameter and of the optimizer state that it keeps; the layout may differ from the
/// one that wrote the checkpoint. State that starts at zero begins with the checkpoint's step, other state where it
/// began before (DistributedOptimizer::state_begins). Throws DataError for a parameter that is missing, superfluous or
/// of another shape, and for state of another shape.
void load_training_state(Checkpoint const& checkpoint, WholeModel const& model, ParameterSet& parameters,
                         DistributedOptimizer& optimizer);

/// Throws ConfigError for the checkpoint of a run that was not trained but made (import, average): training prunes it.
void require_trained_here(Checkpoint const& checkpoint);
/// Throws ConfigError as require_trained_here does, and if a run with `config` cannot resume from `checkpoint`: with
/// another value of a key whose ResumeRule is identity or, unless `new_data` is allowed, another dataset; DataError if
/// the vocabulary is another one.
void check_same_run(Checkpoint const& checkpoint, Config const& config, TrainingData const& data, bool new_data);

/// The checkpoint's configuration, with "section.key=value" in place of its own. Throws ConfigError where it cannot be
/// read, DataError if its seed differs from the one in the checkpoint's state.
Config stored_config(Checkpoint const& checkpoint, std::vector<std::string> const& overrides = {});

/// Throws DataError where the checkpoint has nothing of a layer that its configuration describes, or tables of another
/// width: to build a model that is not there could need any time and memory.
void check_description(Checkpoint const& checkpoint, ModelDescription const& model);

/// Throws DataError unless the checkpoint has just the parameters of its configuration's model, in their shapes. Needs
/// none of the parameters' memory.
void check_parameters(Checkpoint const& checkpoint, ParameterSet const& parameters);

/// Whether the checkpoint was trained on another dataset; false if it does not say.
bool has_new_data(Checkpoint const& checkpoint, TrainingData const& data);
/// The same of one corpus of the configuration, with its place in the checkpoint.
bool has_new_data(Checkpoint const& checkpoint, Config const& config, TrainingData const& data,
                  SampleCursor const& place);

/// Whether a task makes the same samples of the same data with both configurations.
bool same_samples(Config const& before, Config const& after, Task const& task);
/// Whether the best value in validation of the checkpoint was measured on other data than those with the digest, or
/// with another tag. Where an older checkpoint does not say, that is so if data.valid was another path.
bool has_new_validation(Checkpoint const& checkpoint, Config const& config, Task const& task,
                        std::string const& digest);

/// Whether training losses with `config` on `data` can be compared with the checkpoint's.
bool has_comparable_losses(Checkpoint const& checkpoint, Config const& config, Task const& task,
                           TrainingData const& data);

/// The keys with this ResumeRule that have other values in `config` than in the checkpoint.
std::vector<ConfigDifference> differences(Checkpoint const& checkpoint, Config const& config, ResumeRule rule);

/// Messages about the changed keys, and the corpora under other names, that may make a run which resumes from
/// `checkpoint` another one, and that they do. Throws DataError as data_cursor does.
std::vector<std::string> changes_since(Checkpoint const& checkpoint, Config const& config);

}  // namespace heddle
