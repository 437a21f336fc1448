#include "checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/samples/mixture.hpp>
#include <map>
#include <set>
#include <span>

namespace heddle {

namespace {

void require_shape(Checkpoint const& checkpoint, Parameter const& parameter) {
  std::string const& name = parameter.spec.name;
  if (auto const& shape = checkpoint.tensor(name).shape; shape != parameter.global_shape().to_vector()) {
    throw DataError("{}: parameter {} has the shape [{}]; the model's configuration gives it {}",
                    checkpoint.directory().string(), name, fmt::join(shape, ", "),
                    parameter.global_shape().to_string());
  }
}

/// The configuration's keys of the corpora `names` that are not among `others`; "" is the name of data.train.
std::vector<std::string> keys_without(std::vector<std::string> const& names, std::vector<std::string> const& others) {
  std::vector<std::string> keys;
  for (std::string const& name : names) {
    if (std::ranges::find(others, name) == others.end()) {
      keys.push_back(corpus_key(name));
    }
  }
  return keys;
}

/// The configuration's keys of corpora whose names the checkpoint or the configuration lacks.
struct ChangedCorpora {
  std::vector<std::string> added;
  std::vector<std::string> removed;
};

ChangedCorpora corpora_since(Checkpoint const& checkpoint, Config const& config) {
  std::vector<std::string> before;
  for (SampleCursor const& own : data_cursor(checkpoint.contents(), checkpoint.directory().string()).corpora) {
    before.push_back(own.corpus);
  }
  std::vector<std::string> now;
  for (CorpusConfig const& corpus : config.data.corpora) {
    now.push_back(corpus.name);
  }
  if (now.empty()) {
    now.emplace_back();
  }
  return {keys_without(now, before), keys_without(before, now)};
}

/// Messages about such corpora: a place in the data belongs to a name.
std::vector<std::string> describe_corpora(ChangedCorpora const& changed) {
  std::vector<std::string> messages;
  for (std::string const& key : changed.added) {
    messages.push_back(fmt::format("note: {} is not in the checkpoint and starts from its first sample", key));
  }
  for (std::string const& key : changed.removed) {
    messages.push_back(fmt::format(
        "note: the checkpoint has a place in {}, which is not in the configuration; a corpus continues under its name",
        key));
  }
  return messages;
}

bool has_key(Checkpoint const& checkpoint, std::string const& name, std::string const& key) {
  return checkpoint.contains(name) && checkpoint.tensor(name).find(key).has_value();
}

/// Whether the checkpoint has all state of a parameter. One number says how many updates it has seen, so that a part of
/// it is of no use. An average may be missing: it begins with the values.
bool has_state(Checkpoint const& checkpoint, std::string const& name, std::vector<std::string> const& state) {
  return checkpoint.contains(name) && std::ranges::all_of(state, [&](std::string const& key) {
           return is_of_average(key) || has_key(checkpoint, name, key);
         });
}

/// The key of a parameter whose array in the checkpoint becomes its state of that key; none: that starts at zero.
std::optional<std::string> stored_key(Checkpoint const& checkpoint, Parameter const& parameter,
                                      std::string const& key) {
  std::string const& name = parameter.spec.name;
  bool const stored = has_state(checkpoint, name, parameter.state);
  if (is_of_average(key) && checkpoint.contains(name)) {
    return stored && has_key(checkpoint, name, key) ? key : value_key;
  }
  return stored ? std::optional(key) : std::nullopt;
}

void require_state_shape(Checkpoint const& checkpoint, Parameter const& parameter, std::string const& key) {
  std::string const& name = parameter.spec.name;
  auto const whole = parameter.whole_state.find(key);
  Shape const& expected = whole == parameter.whole_state.end() ? parameter.global_shape() : whole->second;
  if (auto const& shape = checkpoint.tensor(name).shape_of(key); shape != expected.to_vector()) {
    throw DataError("{}: {} of parameter {} has the shape [{}]; the update rule {} gives it {}",
                    checkpoint.directory().string(), key, name, fmt::join(shape, ", "), parameter.rule.name,
                    expected.to_string());
  }
}

/// These elements of what is stored under `stored` for this rank's state of that key.
TensorSlice stored_slice(Parameter const& parameter, std::string const& key, std::string const& stored,
                         IndexRange const& elements) {
  bool const whole = parameter.whole_state.contains(key);
  return {parameter.spec.name, stored, whole ? std::vector<IndexRange>() : parameter.slice.ranges(), elements};
}

/// Ranges that are `all` in this order, each short enough to be in memory beside the parameters.
std::vector<IndexRange> pieces_of(IndexRange const& all) {
  constexpr std::int64_t max_elements = std::int64_t{4} << 20;
  std::vector<IndexRange> pieces;
  for (std::int64_t begin = all.begin; begin < all.end; begin += max_elements) {
    pieces.push_back({begin, std::min(begin + max_elements, all.end)});
  }
  return pieces;
}

/// The elements of the slice whose values this rank holds.
IndexRange held_elements(ParameterSet const& parameters, Parameter const& parameter) {
  IndexRange const places = parameters.held_places(parameter);
  return {places.begin - parameter.place.begin, places.end - parameter.place.begin};
}

DistributedOptimizer::StateBegins state_begins(Checkpoint const& checkpoint, WholeModel const& model) {
  DistributedOptimizer::StateBegins begins;
  model.for_each_parameter([&](ParameterDescription const& parameter) {
    auto const before = checkpoint.contents().state_begins.find(parameter.name);
    if (!has_state(checkpoint, parameter.name, parameter.state)) {
      begins[parameter.name] = checkpoint.state().step;
    } else if (!parameter.state.empty() && before != checkpoint.contents().state_begins.end()) {
      begins.insert(*before);
    }
  });
  std::erase_if(begins, [](auto const& begin) { return begin.second == 0; });
  return begins;
}

}  // namespace

void load_value(Checkpoint const& checkpoint, std::string const& name, ParameterSet const& parameters,
                Parameter const& parameter) {
  for (IndexRange const& piece : pieces_of(held_elements(parameters, parameter))) {
    std::vector<float> const numbers = checkpoint.read(TensorSlice{name, value_key, parameter.slice.ranges(), piece});
    std::vector<BFloat16> const halves =
        parameter.spec.rounded ? std::vector<BFloat16>(numbers.begin(), numbers.end()) : std::vector<BFloat16>();
    std::int64_t const begin = parameter.place.begin;
    Tensor const rows = parameters.values_in({begin + piece.begin, begin + piece.end});
    parameter.spec.rounded ? copy_from_host(rows, halves.data()) : copy_from_host(rows, numbers.data());
  }
}

std::string shortened(std::vector<std::string> const& names) {
  constexpr std::size_t shown = 12;
  std::size_t const count = std::min(shown, names.size());
  return fmt::format("{}{}", fmt::join(std::span(names).first(count), ", "),
                     count < names.size() ? fmt::format(" and {} others", names.size() - count) : "");
}

std::vector<TensorSlice> own_slices(Checkpoint const& checkpoint, ParameterSet const& parameters,
                                    DistributedOptimizer const& optimizer) {
  std::vector<TensorSlice> slices;
  for (Parameter const& parameter : parameters.all()) {
    // Parameters that the checkpoint lacks stay: the caller that reads them reports that, together with other ranks.
    IndexRange const held = held_elements(parameters, parameter);
    if (held.count() > 0) {
      slices.push_back({parameter.spec.name, value_key, parameter.slice.ranges(), held});
    }
    for (std::string const& key : parameter.state) {
      if (auto const stored = stored_key(checkpoint, parameter, key)) {
        for (IndexRange const& kept : optimizer.kept_state(parameter, key)) {
          slices.push_back(stored_slice(parameter, key, *stored, kept));
        }
      }
    }
  }
  return slices;
}

std::vector<std::string> new_state(Checkpoint const& checkpoint, std::vector<StreamedTensor> const& tensors) {
  std::map<std::string, std::vector<std::string>> lacking;
  std::map<std::string, std::size_t> wanted;
  for (StreamedTensor const& tensor : tensors) {
    std::vector<std::string> const state(tensor.keys.begin() + 1, tensor.keys.end());
    bool const begins = !has_state(checkpoint, tensor.name, state);
    for (std::string const& key : tensor.keys) {
      ++wanted[key];
      if (!has_key(checkpoint, tensor.name, key) || (begins && is_of_average(key))) {
        lacking[key].push_back(tensor.name);
      }
    }
  }
  std::vector<std::string> messages;
  if (std::ranges::any_of(tensors, [&](StreamedTensor const& tensor) {
        return has_key(checkpoint, tensor.name, average_key) && std::ranges::count(tensor.keys, average_key) == 0;
      })) {
    messages.emplace_back("note: the checkpoint's average ends here: optimizer.average is \"none\"");
  }
  for (auto const& [key, names] : lacking) {
    if (key != average_key && is_of_average(key) && lacking.contains(average_key)) {
      continue;  // the line about the average says it
    }
    bool const all = names.size() == wanted[key] && names.size() > 1;
    messages.push_back(fmt::format(
        "note: {} {}: {}", key,
        is_of_average(key) ? "starts at the values" : "is not in the checkpoint and starts at zero",
        all ? fmt::format("all {} parameters that keep it", readable_count(names.size())) : shortened(names)));
  }
  return messages;
}

void load_training_state(Checkpoint const& checkpoint, WholeModel const& model, ParameterSet& parameters,
                         DistributedOptimizer& optimizer) {
  if (std::size_t const wanted = model.names().size(); checkpoint.tensors().size() != wanted) {
    throw DataError("{}: holds {} parameters, the model has {}", checkpoint.directory().string(),
                    readable_count(checkpoint.tensors().size()), readable_count(wanted));
  }
  for (Parameter const& parameter : parameters.all()) {
    require_shape(checkpoint, parameter);
    load_value(checkpoint, parameter.spec.name, parameters, parameter);
    for (std::string const& key : parameter.state) {
      auto const stored = stored_key(checkpoint, parameter, key);
      if (stored) {
        require_state_shape(checkpoint, parameter, *stored);
      }
      for (IndexRange const& kept : optimizer.kept_state(parameter, key)) {
        for (IndexRange const& piece : pieces_of(kept)) {
          optimizer.set_state(parameter, key, piece,
                              stored ? checkpoint.read(stored_slice(parameter, key, *stored, piece))
                                     : std::vector<float>(static_cast<std::size_t>(piece.count())));
        }
      }
    }
  }
  optimizer.set_state_begins(state_begins(checkpoint, model));
  parameters.bump_versions();
}

Config stored_config(Checkpoint const& checkpoint, std::vector<std::string> const& overrides) {
  std::string const where = checkpoint.directory().string() + ": its config";
  if (auto const seed = parse_config(checkpoint.contents().config, where).train.seed; seed != checkpoint.state().seed) {
    throw DataError("{}: was trained with the seed {}, but its configuration has train.seed = {}",
                    checkpoint.directory().string(), checkpoint.state().seed, seed);
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
    std::int64_t const d_model = stack.keys->d_model;
    if (std::int64_t const width = checkpoint.tensor(table).shape.back(); width != d_model) {
      throw DataError("{}: parameter {} has rows of {} numbers; in its configuration, d_model of the {} is {}", where,
                      table, width, stack.name, d_model);
    }
    for (LayerDescription const& layer : stack.layers) {
      for (SublayerDescription const& sublayer : layer.sublayers) {
        auto const first = names.lower_bound(sublayer.path + ".");
        if (first == names.end() || !first->starts_with(sublayer.path + ".")) {
          throw DataError("{}: holds no parameter of {}, which its configuration describes", where, sublayer.path);
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
      throw DataError("{}: holds no parameter {}, which the model of its configuration has", where, name);
    }
    require_shape(checkpoint, parameter);
  }
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    if (parameters.find(tensor.name) == nullptr) {
      throw DataError("{}: holds a parameter {}, which its configuration's model does not have", where, tensor.name);
    }
  }
}

bool has_new_data(Checkpoint const& checkpoint, TrainingData const& data) {
  return !checkpoint.contents().dataset.empty() && checkpoint.contents().dataset != data.digest();
}

bool has_new_data(Checkpoint const& checkpoint, Config const& config, TrainingData const& data,
                  SampleCursor const& place) {
  std::vector<CorpusConfig> const corpora = config.data.training();
  auto const corpus = std::ranges::find(corpora, place.corpus, &CorpusConfig::name);
  if (corpus == corpora.end()) {
    return false;  // it is read no longer
  }
  bool const recorded = !place.digest.empty();  // not of one dataset, and not by earlier versions
  return recorded ? data.train[static_cast<std::size_t>(corpus - corpora.begin())].digest() != place.digest
                  : has_new_data(checkpoint, data);
}

void require_trained_here(Checkpoint const& checkpoint) {
  if (checkpoint.state().step == 0 && checkpoint.contents().dataset.empty()) {
    throw ConfigError(
        "{}: a model that was imported or made; training in its directory would delete it: start a new run "
        "with its parameters, --set run.directory=NEW --set train.initialize_from={}",
        checkpoint.directory().string(), checkpoint.directory().parent_path().parent_path().string());
  }
}

void check_same_run(Checkpoint const& checkpoint, Config const& config, TrainingData const& data, bool new_data) {
  std::string const where = checkpoint.directory().string();
  require_trained_here(checkpoint);
  std::vector<std::string> changed;
  for (ConfigDifference const& difference : differences(checkpoint, config, ResumeRule::identity)) {
    changed.push_back(fmt::format("{} = {} there, {} here", difference.key, difference.before, difference.after));
  }
  if (!changed.empty()) {
    throw ConfigError(
        "{} is of another run: {}; a run that resumes keeps these keys: make them equal, start over with --fresh, or "
        "start a new run with its parameters (train.initialize_from)",
        where, fmt::join(changed, "; "));
  }
  if (checkpoint.contents().source_model != data.vocabulary().source.model() ||
      checkpoint.contents().target_model != data.vocabulary().target.model()) {
    throw DataError(
        "{0} was trained with another vocabulary than {1} has; name the dataset that the run started with, prepare "
        "this one with the run's vocabulary (heddle prepare --vocab-model {0}), or start over with --fresh",
        where, data.name());
  }
  if (has_new_data(checkpoint, data) && !new_data) {
    ChangedCorpora const changed_corpora = corpora_since(checkpoint, config);
    std::vector<std::string> difference;
    for (std::string const& key : changed_corpora.added) {
      difference.push_back(key + " was not among its data");
    }
    for (std::string const& key : changed_corpora.removed) {
      difference.push_back(key + " was, and is not in the configuration");
    }
    for (SampleCursor const& own : data_cursor(checkpoint.contents(), where).corpora) {
      if (!own.digest.empty() && has_new_data(checkpoint, config, data, own)) {
        difference.push_back(corpus_key(own.corpus) + " had other data");
      }
    }
    if (difference.empty()) {
      difference.push_back(
          fmt::format("its data have the digest {}, {} {}", checkpoint.contents().dataset, data.name(), data.digest()));
    }
    std::string const message = fmt::format(
        "{} was trained on other data: {}: resuming would mix their orders; name the data that the run started with, "
        "resume with what is new from its start by --new-data, start over with --fresh, or fine-tune in another "
        "run.directory with train.initialize_from",
        where, fmt::join(difference, "; "));
    bool const text = std::ranges::any_of(data.train, [](TrainingSet const& set) { return set.text() != nullptr; });
    text ? throw DataError(message) : throw ConfigError(message);
  }
}

bool same_samples(Config const& before, Config const& after, Task const& task) {
  if (before.train.task != after.train.task) {
    return false;
  }
  std::vector<std::string> const keys = task.keys();
  return std::ranges::none_of(differences(before, after), [&](ConfigDifference const& difference) {
    return std::ranges::any_of(keys, [&](std::string const& key) { return difference.key == "train." + key; });
  });
}

bool has_new_validation(Checkpoint const& checkpoint, Config const& config, Task const& task,
                        std::string const& digest) {
  Config const saved = stored_config(checkpoint);
  if (!same_samples(saved, config, task)) {
    return true;  // other tokens of the same text
  }
  return checkpoint.contents().valid_dataset.empty() ? saved.data.valid != config.data.valid
                                                     : checkpoint.contents().valid_dataset != digest;
}

bool has_comparable_losses(Checkpoint const& checkpoint, Config const& config, Task const& task,
                           TrainingData const& data) {
  Config const saved = stored_config(checkpoint);
  return !has_new_data(checkpoint, data) && saved.train.label_smoothing == config.train.label_smoothing &&
         saved.train.z_loss == config.train.z_loss && saved.train.r_drop == config.train.r_drop &&
         saved.train.teacher == config.train.teacher && saved.train.teacher_weight == config.train.teacher_weight &&
         same_samples(saved, config, task);
}

std::vector<ConfigDifference> differences(Checkpoint const& checkpoint, Config const& config, ResumeRule rule) {
  std::vector<ConfigDifference> found = differences(stored_config(checkpoint), config);
  std::erase_if(found, [&](ConfigDifference const& difference) { return difference.resume != rule; });
  return found;
}

std::vector<std::string> changes_since(Checkpoint const& checkpoint, Config const& config) {
  std::string const& schedule = config.optimizer.schedule;
  bool const only_longer = schedule == "inverse_sqrt" || schedule == "constant" || schedule == "step";
  std::vector<std::string> messages = describe_corpora(corpora_since(checkpoint, config));
  bool another_run = !messages.empty();
  for (ConfigDifference const& difference : differences(checkpoint, config, ResumeRule::trajectory)) {
    messages.push_back(fmt::format("changed since the checkpoint: {} = {}, before {}", difference.key, difference.after,
                                   difference.before));
    another_run = another_run || difference.key != "train.steps" || !only_longer;
  }
  if (another_run) {
    messages.push_back(fmt::format("note: from step {} on this is another run than the one that was started",
                                   readable_count(checkpoint.state().step + 1)));
  }
  return messages;
}

}  // namespace heddle
