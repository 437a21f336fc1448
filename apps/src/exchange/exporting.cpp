#include "exporting.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/io/exchange/ctranslate2.hpp>
#include <heddle/io/exchange/exchanged_tensors.hpp>
#include <heddle/io/exchange/marian.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/formats/safetensors.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>

#include "checkpoints/averaging.hpp"
#include "checkpoints/checkpoint.hpp"
#include "exchange/adapters.hpp"
#include "exchange/importing.hpp"
#include "exchange/probe.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// The place where a directory is written before it gets its name.
fs::path place_beside(fs::path const& target) {
  if (fs::exists(fs::symlink_status(target))) {
    throw ConfigError(fmt::format("--out {} exists; name a new directory", target.string()));
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
  SafetensorsWriter writer(directory, std::move(tensors));
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

/// A checkpoint with nothing but the model: without optimizer state, places in data and losses.
std::int64_t write_stripped(Checkpoint checkpoint, std::string const& dtype, fs::path const& directory) {
  if (dtype != "float32" && dtype != "bfloat16") {
    throw UsageError("--dtype " + dtype + ": Heddle's own models are float32 or bfloat16");
  }
  CheckpointContents contents = checkpoint.contents();
  contents.cursor.clear();
  contents.losses = {};
  contents.state_begins.clear();
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

/// Reads the files back and compares the logits of a probe. Returns the largest difference.
double compare_logits(Execution& execution, ExportOptions const& options, fs::path const& checkpoint,
                      fs::path const& exported) {
  bool const ours_already = options.format == "heddle";
  fs::path const run = ours_already ? exported : exported / "probe";
  if (is_peft(exported)) {
    import_peft(execution, exported, checkpoint.string(), run, {.overrides = {"adapter.save_base=false"}});
  } else if (!ours_already) {
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

std::int64_t write_adapters(Checkpoint const& checkpoint, Config const& config, ExportOptions const& options,
                            fs::path const& directory) {
  auto const [family, made] = choose_family(options.family, checkpoint, config);
  return write_peft(checkpoint, {*family, config.model, made}, options.dtype, directory);
}

}  // namespace

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
  std::string reasons;
  for (Family const& family : families()) {
    try {
      return {&family, config_json(family, config)};
    } catch (ConfigError const& error) {
      reasons += fmt::format("\n  {}: {}", family.model_type, error.what());
    }
  }
  throw ConfigError(
      fmt::format("{}: no family of transformers has this model:{}", checkpoint.directory().string(), reasons));
}

ExportedModel export_model(Execution& execution, ExportOptions const& options) {
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
  ExportedModel result{.checkpoint = trained.directory(), .family = options.format};
  if (options.format == "ctranslate2") {
    result.tensors = write_ctranslate2(checkpoint, config, options.dtype, directory.path());
  } else if (options.format == "marian") {
    if (options.dtype != "float32") {
      throw UsageError("--dtype " + options.dtype + ": Marian's models are float32");
    }
    result.tensors = write_marian(checkpoint, config, directory.path());
  } else if (options.format == "huggingface") {
    write_huggingface(checkpoint, config, options, directory.path(), result);
  } else if (options.format == "peft") {
    result.tensors = write_adapters(checkpoint, config, options, directory.path());
  } else if (options.format == "heddle") {
    result.tensors = write_stripped(std::move(checkpoint), options.dtype, directory.path());
  } else {
    throw UsageError(
        fmt::format("--format {}: possible are huggingface, heddle, marian, ctranslate2 and peft", options.format));
  }
  fs::remove_all(merged_run);
  if (options.format != "ctranslate2") {
    result.largest_difference = compare_logits(execution, options, result.checkpoint, directory.path());
  }
  publish(directory, options.directory);
  return result;
}

}  // namespace heddle
