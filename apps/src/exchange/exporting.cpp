#include "exporting.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/io/exchange/ctranslate2.hpp>
#include <heddle/io/exchange/exchanged_tensors.hpp>
#include <heddle/io/exchange/marian.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/formats/safetensors.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/text/text_form.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>
#include <limits>
#include <tuple>

#include "checkpoints/averaging.hpp"
#include "checkpoints/checkpoint.hpp"
#include "exchange/adapters.hpp"
#include "exchange/importing.hpp"
#include "exchange/probe.hpp"
#include "report/warning.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// The place where a directory is written before it gets its name.
fs::path place_beside(fs::path const& target) {
  if (fs::exists(fs::symlink_status(target))) {
    throw UsageError(fmt::format("--out {} exists; name a new directory", target.string()));
  }
  if (target.has_parent_path()) {
    make_directory(target.parent_path());
  }
  return fmt::format("{}.part-{}", target.string(), ::getpid());
}

/// Gives a directory its name, on the disk.
void publish(UnfinishedDirectory& directory, fs::path const& target) {
  sync_to_disk(directory.path());
  directory.rename_to(target);
  sync_to_disk(target.has_parent_path() ? target.parent_path() : ".");
}

std::int64_t write_tensors(Checkpoint const& checkpoint, ExchangedModel const& model, ExportOptions const& options,
                           fs::path const& directory) {
  std::vector<ExportedTensor> const exported = exported_tensors(checkpoint, model);
  SafetensorsWriter::Tensors tensors;
  for (ExportedTensor const& tensor : exported) {
    tensors.emplace_back(tensor.name, ForeignTensor{tensor.shape, options.dtype});
  }
  SafetensorsWriter writer(directory, std::move(tensors), options.max_shard_bytes);
  for (ExportedTensor const& tensor : exported) {
    read_exported(checkpoint, tensor, model, [&](std::span<float const> elements) { writer.write(elements); });
  }
  writer.finish();
  return std::ssize(exported);
}

void write_huggingface(Checkpoint const& checkpoint, Config const& config, ExportOptions const& options,
                       fs::path const& directory, ExportedModel& result) {
  auto [family, made] = choose_family(options.family, checkpoint, config);
  result.family = family->model_type;
  made["torch_dtype"] = options.dtype;
  auto const files = vocabulary_files(*family, checkpoint.contents().vocabulary(), checkpoint.contents().origin, made);
  for (auto const& [name, bytes] : files) {
    replace_file(directory / name, bytes);
  }
  replace_file(directory / "config.json", json::serialize(made) + "\n");
  result.tensors = write_tensors(checkpoint, {*family, config.model, made}, options, directory);
}

/// Without places in data and losses.
CheckpointContents contents_of_model(Checkpoint const& checkpoint) {
  CheckpointContents contents = checkpoint.contents();
  contents.cursor.clear();
  contents.losses = {};
  contents.state_begins.clear();
  return contents;
}

/// The parameters that write_plain wrote.
class PlainTensors final : public OneRankTensors {
 public:
  PlainTensors(Checkpoint const& checkpoint, SafetensorsFiles const& files) : files_(files) {
    for (TensorInfo const& tensor : checkpoint.tensors()) {
      tensors_.push_back({tensor.name, tensor.shape});
    }
  }
  void receive(TensorChunk const& chunk, std::span<float> elements) override {
    files_.read(tensors_.at(chunk.tensor).name, chunk.elements, elements);
  }

 private:
  SafetensorsFiles const& files_;
};

/// The models that texts are encoded and decoded with; SentencePiece reads its own.
void write_vocabulary_models(Checkpoint const& checkpoint, fs::path const& directory) {
  replace_file(directory / "source.model", checkpoint.contents().source_model);
  replace_file(directory / "target.model", checkpoint.contents().target_model);
}

/// The parameters under their names here, [model] as JSON and the vocabulary; and in `probe` a run made of these files.
std::int64_t write_plain(Checkpoint const& checkpoint, ExportOptions const& options, fs::path const& directory,
                         fs::path const& probe) {
  SafetensorsWriter::Tensors tensors;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    tensors.emplace_back(tensor.name, ForeignTensor{tensor.shape, options.dtype});
  }
  SafetensorsWriter writer(directory, std::move(tensors), options.max_shard_bytes);
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    for (TensorSlice const& slab : slabs_of(tensor)) {
      writer.write(checkpoint.read(slab));
    }
  }
  writer.finish();
  json::object keys;
  for (auto const& [key, value] : key_values(stored_config(checkpoint, options.model.overrides))) {
    if (key.starts_with("model.")) {
      keys[key] = json::parse(value);
    }
  }
  replace_file(directory / "config.json", json::serialize(keys) + "\n");
  write_vocabulary_models(checkpoint, directory);
  SafetensorsFiles const files = SafetensorsFiles::open(directory);
  PlainTensors again(checkpoint, files);
  CheckpointStore(probe / "checkpoints", 2).commit(Communicator::self(), contents_of_model(checkpoint), again, 1);
  return std::ssize(files.tensors());
}

/// A checkpoint with nothing but the model: without optimizer state, places in data and losses.
std::int64_t write_stripped(Checkpoint checkpoint, std::string const& dtype, fs::path const& directory) {
  if (dtype != "float32" && dtype != "bfloat16") {
    throw UsageError("--dtype " + dtype + ": Heddle's own models are float32 or bfloat16");
  }
  CheckpointContents const contents = contents_of_model(checkpoint);
  AveragedModel const model({std::move(checkpoint)});
  AveragedTensors tensors(model, dtype == "float32" ? DType::float32 : DType::bfloat16);
  fs::path const store = directory / "store";
  fs::path const written = CheckpointStore(store, 2).commit(Communicator::self(), contents, tensors, 1).directory;
  for (auto const& entry : fs::directory_iterator(written)) {
    fs::rename(entry.path(), directory / entry.path().filename());
  }
  fs::remove_all(store);
  return std::ssize(tensors.tensors());
}

/// Reads the files back, unless write_plain did, and compares the logits of a probe. Returns the largest difference.
double compare_logits(Execution& execution, ExportOptions const& options, fs::path const& checkpoint,
                      fs::path const& exported) {
  fs::path const run = options.format == "heddle" ? exported : exported / "probe";
  if (is_peft(exported)) {
    import_peft(execution, exported, checkpoint.string(), run, {.overrides = {"adapter.save_base=false"}});
  } else if (!fs::exists(run)) {
    import_model(execution, exported, run);
  }
  TrainedModelOptions ours = options.model;
  ours.checkpoint = checkpoint.string();
  TrainedModelOptions theirs = ours;
  theirs.checkpoint = run.string();
  theirs.which = "auto";  // it has one checkpoint, which no validation marked
  std::vector<float> const before = probe_logits(execution, ours);
  std::vector<float> const after = probe_logits(execution, theirs);
  fs::remove_all(exported / "probe");
  double largest = 0;
  double difference = before.size() == after.size() ? 0 : INFINITY;
  for (std::size_t index = 0; index < std::min(before.size(), after.size()); ++index) {
    largest = std::max(largest, std::abs(static_cast<double>(before[index])));
    difference = std::max(difference, std::abs(static_cast<double>(before[index]) - static_cast<double>(after[index])));
  }
  double const rounding = options.dtype == "float32" ? 1e-5 : options.dtype == "float16" ? 1e-2 : 1e-1;
  if (!(difference <= rounding * std::max(largest, 1.0))) {
    throw Error(
        fmt::format("verification failed: the exported model, read back, gives different logits (difference {:.3g}, "
                    "largest logit {:.3g})",
                    difference, largest));
  }
  return difference;
}

/// Throws UsageError for an unknown format, and for options that the format has not.
void check_format(ExportOptions const& options) {
  constexpr std::array formats{"huggingface", "safetensors", "heddle", "marian", "ctranslate2", "peft"};
  auto const is_one_of = [&](std::initializer_list<std::string_view> some) {
    return std::ranges::find(some, options.format) != some.end();
  };
  if (std::ranges::find(formats, options.format) == formats.end()) {
    throw UsageError(fmt::format("--format {}: possible are {}", options.format, fmt::join(formats, ", ")));
  }
  if (!options.family.empty() && !is_one_of({"huggingface", "peft"})) {
    throw UsageError(fmt::format("--family is for the formats huggingface and peft; {} has one form for all models",
                                 options.format));
  }
  if (!options.base.empty() && options.format != "peft") {
    throw UsageError("--base is for --format peft");
  }
  if (options.max_shard_bytes != SafetensorsWriter::default_shard_bytes && !is_one_of({"huggingface", "safetensors"})) {
    throw UsageError("--max-shard-size is for the formats huggingface and safetensors");
  }
}

/// Throws where the format and --merge do not go together with the model's adapters.
void check_adapters(ExportOptions const& options, Checkpoint const& checkpoint, Config const& config) {
  bool const adapters = config.model.adapter.rank > 0;
  bool const alone = options.format == "peft";
  if (alone && options.merge) {
    throw UsageError("--merge folds adapters into the weights, --format peft writes them alone: give one of the two");
  }
  if (adapters != (alone || options.merge)) {
    throw ConfigError(
        fmt::format("{}: {}", checkpoint.directory().string(),
                    adapters ? "has adapters: --merge folds them into the weights, --format peft writes them alone"
                             : "has no adapters, which --merge and --format peft are for"));
  }
}

/// CTranslate2's models have a bias against single tokens, and no place for other limits of generation.
void warn_of_limits(Vocabulary const& vocabulary) {
  GenerationLimits const limits = limits_of(vocabulary);
  auto const is_long = [](auto const& sequence) { return sequence.size() > 1; };
  if (std::ranges::any_of(limits.suppressed, is_long) || !limits.suppressed_first.empty()) {
    warn(
        "bad_words_ids of several tokens and begin_suppress_tokens are not in CTranslate2's model: give them to "
        "translate_batch, as suppress_sequences");
  }
}

std::int64_t write_adapters(Checkpoint const& checkpoint, Config const& config, ExportOptions const& options,
                            fs::path const& directory) {
  auto const [family, made] = choose_family(options.family, checkpoint, config);
  return write_peft(checkpoint, {*family, config.model, made}, options, directory);
}

/// Whether the family's models have the stacks of this one.
bool has_stacks(Family const& family, ModelConfig const& model) {
  auto const stacks = std::ranges::find_if(
      family.settings, [](std::string_view setting) { return setting.starts_with("model.stacks="); });
  return stacks == family.settings.end() ? model.is_encoder_decoder()
                                         : *stacks == "model.stacks=" + to_toml(OptionValue(model.stacks));
}

}  // namespace

std::pair<Family const*, std::vector<std::string>> nearest_family(Config const& config, Vocabulary const& vocabulary) {
  std::pair<Family const*, std::vector<std::string>> nearest{nullptr, {}};
  std::tuple<bool, bool, std::size_t> smallest{true, true, std::numeric_limits<std::size_t>::max()};
  for (Family const& family : families()) {
    if (!has_stacks(family, config.model)) {
      continue;
    }
    std::vector<std::string> obstacles = obstacles_of(family, config);
    std::string const of_vocabulary = vocabulary_obstacle(family, vocabulary);
    std::tuple const distance{!obstacles.empty(), !of_vocabulary.empty(), obstacles.size()};
    if (distance < smallest) {
      smallest = distance;
      if (!obstacles.empty() && !of_vocabulary.empty()) {
        obstacles.push_back(of_vocabulary);
      }
      nearest = {&family, std::move(obstacles)};
    }
  }
  return nearest;
}

std::pair<Family const*, json::object> choose_family(std::string wanted, Checkpoint const& checkpoint,
                                                     Config const& config) {
  auto const origin = checkpoint.contents().origin.find("config.json");
  if (wanted.empty() && origin != checkpoint.contents().origin.end()) {
    wanted = family_of(json_object_of(origin->second, "config.json")).model_type;
  }
  if (!wanted.empty()) {
    Family const& family = family_named(wanted);
    json::object made = config_json(family, config);
    if (origin != checkpoint.contents().origin.end()) {
      restore_length(family, json::parse(origin->second).as_object(), made);
    }
    return {&family, std::move(made)};
  }
  auto const [family, obstacles] = nearest_family(config, checkpoint.contents().vocabulary());
  if (family == nullptr || !obstacles.empty()) {
    throw ConfigError(
        fmt::format("{}: no family of transformers has this model; --format safetensors writes any.{}",
                    checkpoint.directory().string(),
                    family == nullptr ? "" : fmt::format(" The nearest family:\n  {}", fmt::join(obstacles, "\n  "))));
  }
  return {family, config_json(*family, config)};
}

namespace {

/// Exports once; `chosen` is the checkpoint, as soon as there is one. It is read by its name again for the comparison.
ExportedModel export_once(Execution& execution, ExportOptions const& options, fs::path& chosen) {
  UnfinishedDirectory directory(place_beside(options.directory));
  auto opened = open_checkpoints(options.model);
  Checkpoint& trained = opened.checkpoints.front();
  check_adapters(options, trained, stored_config(trained));
  fs::path const merged_run = directory.path() / "merged";
  std::optional<Checkpoint> merged;
  if (options.merge) {
    merged.emplace(Checkpoint::open(merge_adapters(trained, merged_run)));
  }
  Checkpoint& checkpoint = merged ? *merged : trained;
  Config const config = stored_config(checkpoint, options.model.overrides);
  ExportedModel result{.checkpoint = chosen = trained.directory(), .family = options.format};
  if (options.format == "ctranslate2") {
    result.tensors = write_ctranslate2(checkpoint, config, options.dtype, directory.path());
    write_vocabulary_models(checkpoint, directory.path());
    warn_of_limits(checkpoint.contents().vocabulary());
  } else if (options.format == "marian") {
    if (options.dtype != "float32") {
      throw UsageError("--dtype " + options.dtype + ": Marian's models are float32");
    }
    result.tensors = write_marian(checkpoint, config, directory.path());
  } else if (options.format == "huggingface") {
    write_huggingface(checkpoint, config, options, directory.path(), result);
  } else if (options.format == "peft") {
    result.tensors = write_adapters(checkpoint, config, options, directory.path());
  } else if (options.format == "safetensors") {
    result.tensors = write_plain(checkpoint, options, directory.path(), directory.path() / "probe");
  } else {
    result.tensors = write_stripped(std::move(checkpoint), options.dtype, directory.path());
  }
  fs::remove_all(merged_run);
  if (options.format != "ctranslate2") {
    result.largest_difference = compare_logits(execution, options, result.checkpoint, directory.path());
  }
  publish(directory, options.directory);
  return result;
}

}  // namespace

ExportedModel export_model(Execution& execution, ExportOptions const& options) {
  check_format(options);
  fs::path checkpoint;
  while (true) {
    try {
      return export_once(execution, options, checkpoint);
    } catch (Error const&) {
      if (checkpoint.empty() || fs::exists(checkpoint)) {
        throw;
      }
      checkpoint.clear();  // it was pruned meanwhile: the run has another one to export
    }
  }
}

}  // namespace heddle
