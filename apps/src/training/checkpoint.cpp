#include "checkpoint.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <set>

namespace heddle {

namespace {

/// This rank's shard of a parameter's value or moment, or some elements of it.
TensorSlice own_slice(Parameter const& parameter, TensorPart part, std::optional<IndexRange> elements = {}) {
  int const axis = parameter.spec.shard.axis;
  return {parameter.spec.name, part, axis, parameter.shard_begin, axis < 0 ? 0 : parameter.local_shape[axis], elements};
}

void require_shape(Checkpoint const& checkpoint, Parameter const& parameter) {
  std::string const& name = parameter.spec.name;
  if (auto const& shape = checkpoint.tensor(name).shape; shape != parameter.spec.shape.to_vector()) {
    throw DataError(fmt::format("{}: parameter {} has the shape [{}]; the model's configuration gives it {}",
                                checkpoint.directory().string(), name, fmt::join(shape, ", "),
                                parameter.spec.shape.to_string()));
  }
}

}  // namespace

std::vector<TensorSlice> own_slices(ParameterSet const& parameters, DistributedOptimizer const& optimizer) {
  std::vector<TensorSlice> slices;
  for (Parameter const& parameter : parameters.all()) {
    slices.push_back(own_slice(parameter, TensorPart::value));
    for (IndexRange const& kept : optimizer.kept_moments(parameter)) {
      slices.push_back(own_slice(parameter, TensorPart::first_moment, kept));
      slices.push_back(own_slice(parameter, TensorPart::second_moment, kept));
    }
  }
  return slices;
}

void load_training_state(Checkpoint const& checkpoint, WholeModel const& model, ParameterSet& parameters,
                         DistributedOptimizer& optimizer) {
  if (std::size_t const wanted = model.names().size(); checkpoint.tensors().size() != wanted) {
    throw DataError(fmt::format("{}: holds {} parameters, the model has {}", checkpoint.directory().string(),
                                readable_count(checkpoint.tensors().size()), readable_count(wanted)));
  }
  for (Parameter const& parameter : parameters.all()) {
    require_shape(checkpoint, parameter);
    copy_from_host(parameter.value, checkpoint.read(own_slice(parameter, TensorPart::value)).data());
    for (IndexRange const& kept : optimizer.kept_moments(parameter)) {
      auto const moment = [&](TensorPart of) { return checkpoint.read(own_slice(parameter, of, kept)); };
      optimizer.set_moments(parameter, kept, moment(TensorPart::first_moment), moment(TensorPart::second_moment));
    }
  }
  parameters.bump_versions();
}

Config stored_config(Checkpoint const& checkpoint, std::vector<std::string> const& overrides) {
  std::string const where = checkpoint.directory().string() + ": its config";
  if (auto const seed = parse_config(checkpoint.contents().config, where).train.seed; seed != checkpoint.state().seed) {
    throw DataError(fmt::format("{}: was trained with the seed {}, but its configuration has train.seed = {}",
                                checkpoint.directory().string(), checkpoint.state().seed, seed));
  }
  return parse_config(checkpoint.contents().config, where, overrides);
}

void check_description(Checkpoint const& checkpoint, ModelDescription const& model) {
  std::string const where = checkpoint.directory().string();
  std::set<std::string> names;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    names.insert(tensor.name);
  }
  for (StackDescription const& stack : model.stacks) {
    std::string const own = stack.name + ".embedding.weight";
    std::string const table = checkpoint.contains(own) ? own : "embedding.weight";
    if (std::int64_t const width = checkpoint.tensor(table).shape.back(); width != model.keys.d_model) {
      throw DataError(fmt::format("{}: parameter {} has rows of {} numbers; in its configuration, model.d_model is {}",
                                  where, table, width, model.keys.d_model));
    }
    for (LayerDescription const& layer : stack.layers) {
      for (SublayerDescription const& sublayer : layer.sublayers) {
        auto const first = names.lower_bound(sublayer.path + ".");
        if (first == names.end() || !first->starts_with(sublayer.path + ".")) {
          throw DataError(
              fmt::format("{}: holds no parameter of {}, which its configuration describes", where, sublayer.path));
        }
      }
    }
  }
}

void check_parameters(Checkpoint const& checkpoint, ParameterSet const& parameters) {
  std::string const where = checkpoint.directory().string();
  for (Parameter const& parameter : parameters.all()) {
    std::string const& name = parameter.spec.name;
    if (!checkpoint.contains(name)) {
      throw DataError(fmt::format("{}: holds no parameter {}, which the model of its configuration has", where, name));
    }
    require_shape(checkpoint, parameter);
  }
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    if (parameters.find(tensor.name) == nullptr) {
      throw DataError(
          fmt::format("{}: holds a parameter {}, which its configuration's model does not have", where, tensor.name));
    }
  }
}

bool has_new_data(Checkpoint const& checkpoint, TrainingData const& data) {
  return !checkpoint.contents().dataset.empty() && checkpoint.contents().dataset != data.digest();
}

void check_same_run(Checkpoint const& checkpoint, Config const& config, TrainingData const& data, bool new_data) {
  std::string const where = checkpoint.directory().string();
  Config const saved = stored_config(checkpoint);
  std::vector<std::string> changed;
  for (ConfigDifference const& difference : model_differences(checkpoint, config)) {
    changed.push_back(fmt::format("{} = {} there, {} here", difference.key, difference.before, difference.after));
  }
  if (!changed.empty()) {
    throw ConfigError(
        fmt::format("{} was trained with another [model]: {}; make them equal, or start over with --fresh", where,
                    fmt::join(changed, "; ")));
  }
  if (saved.train.seed != config.train.seed) {
    throw ConfigError(
        fmt::format("{} was trained with train.seed = {}, not {}: resuming would mix two orders of the data; "
                    "set it back, or start over with --fresh",
                    where, saved.train.seed, config.train.seed));
  }
  if (checkpoint.contents().source_model != data.vocabulary().source.model() ||
      checkpoint.contents().target_model != data.vocabulary().target.model()) {
    throw DataError(
        fmt::format("{} was trained with another vocabulary than data.train has; name the dataset that the run "
                    "started with, or start over with --fresh",
                    where));
  }
  if (has_new_data(checkpoint, data) && !new_data) {
    throw ConfigError(fmt::format(
        "{} was trained on the dataset with digest {}, but {} has {}: resuming would mix their orders; name "
        "the dataset that the run started with, resume with this one from its start by --new-data, or start over with "
        "--fresh",
        where, checkpoint.contents().dataset, data.name(), data.digest()));
  }
}

/// Whether a task makes the same samples of the same data with both configurations.
bool same_samples(Config const& before, Config const& after, Task const& task) {
  if (before.train.task != after.train.task) {
    return false;
  }
  std::vector<std::string> const keys = task.keys();
  return std::ranges::none_of(differences(before, after), [&](ConfigDifference const& difference) {
    return std::ranges::any_of(keys, [&](std::string const& key) { return difference.key == "train." + key; });
  });
}

bool has_new_validation(Checkpoint const& checkpoint, Config const& config, Task const& task, Dataset const& valid) {
  Config const saved = stored_config(checkpoint);
  if (!same_samples(saved, config, task)) {
    return true;  // other tokens of the same text
  }
  return checkpoint.contents().valid_dataset.empty() ? saved.data.valid != config.data.valid
                                                     : checkpoint.contents().valid_dataset != valid.digest();
}

bool has_comparable_losses(Checkpoint const& checkpoint, Config const& config, Task const& task,
                           TrainingData const& data) {
  Config const saved = stored_config(checkpoint);
  return !has_new_data(checkpoint, data) && saved.train.label_smoothing == config.train.label_smoothing &&
         saved.train.z_loss == config.train.z_loss && same_samples(saved, config, task);
}

std::vector<ConfigDifference> model_differences(Checkpoint const& checkpoint, Config const& config) {
  std::vector<ConfigDifference> found = differences(stored_config(checkpoint), config);
  std::erase_if(found, [](ConfigDifference const& difference) {
    return !difference.key.starts_with("model.") || difference.key.ends_with("recompute");  // which changes no result
  });
  return found;
}

std::vector<std::string> changed_keys(Checkpoint const& checkpoint, Config const& config) {
  std::vector<std::string> changes;
  for (ConfigDifference const& difference : differences(stored_config(checkpoint), config)) {
    changes.push_back(fmt::format("{} = {}, before {}", difference.key, difference.after, difference.before));
  }
  return changes;
}

}  // namespace heddle
