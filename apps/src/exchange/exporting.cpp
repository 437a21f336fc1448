#include "exporting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/algorithm/string/replace.hpp>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/token_embedding.hpp>
#include <heddle/io/exchange/ctranslate2.hpp>
#include <heddle/io/exchange/exchanged_tensors.hpp>
#include <heddle/io/exchange/marian.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/formats/safetensors.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/tokenizers/text_form.hpp>
#include <heddle/io/vocabularies/tokenizer_json.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>
#include <limits>
#include <numeric>
#include <tuple>

#include "exchange/adapters.hpp"
#include "exchange/importing.hpp"
#include "exchange/model_form.hpp"
#include "exchange/probe.hpp"
#include "run/checkpoints/averaging.hpp"
#include "run/checkpoints/checkpoint.hpp"
#include "run/directory/warning.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

std::int64_t write_tensors(Checkpoint const& checkpoint, ExchangedModel const& model, ExportOptions const& options,
                           fs::path const& directory) {
  std::vector<ExportedTensor> const exported = exported_tensors(checkpoint, model);
  SafetensorsWriter::Tensors tensors;
  for (ExportedTensor const& tensor : exported) {
    tensors.emplace_back(tensor.name, ForeignTensor{tensor.shape, options.dtype});
  }
  bool const sinusoidal = model.ours.positions == Positions::sinusoidal;
  auto const sinusoids = sinusoidal ? model.family.sinusoids : std::vector<std::string>();
  for (std::string const& name : sinusoids) {
    tensors.emplace_back(name, ForeignTensor{{model.ours.max_length, model.ours.d_model}, options.dtype});
  }
  std::int64_t const count = std::ssize(tensors);
  SafetensorsWriter writer(directory, std::move(tensors), options.max_shard_bytes);
  for (ExportedTensor const& tensor : exported) {
    read_exported(checkpoint, tensor, model, [&](std::span<float const> elements) { writer.write(elements); });
  }
  for (std::size_t table = 0; table < sinusoids.size(); ++table) {
    std::vector<double> const positions = sinusoidal_positions(model.ours);
    writer.write(std::vector<float>(positions.begin(), positions.end()));
  }
  writer.finish();
  return count;
}

/// The generation_config.json of a model that was trained here: with config.json alone, outputs end after 20 tokens.
std::string generation_config(json::object const& made, ModelConfig const& model) {
  json::object keys{{"max_length", model.max_length}};
  for (char const* const key :
       {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_eos_token_id"}) {
    if (json::value const* const found = find_key(made, key)) {
      keys[key] = *found;
    }
  }
  return json::serialize(keys) + "\n";
}

/// The model in the form that is exported; null where the checkpoint has it already.
std::optional<Checkpoint> in_form(Execution& execution, Checkpoint const& checkpoint, Config const& config,
                                  Config const& form, fs::path const& run) {
  if (form.model == config.model) {
    return std::nullopt;
  }
  CheckpointContents const& contents = checkpoint.contents();
  return Checkpoint::open(write_form(execution, checkpoint, config,
                                     {form, contents.source_model, contents.target_model, contents.origin}, run));
}

/// The model that the exported files are compared with, and the pieces of both.
struct Reference {
  TrainedModelOptions model;
  ProbePieces pieces = {}, exported_pieces = {};
  std::vector<std::string> keys = {};  ///< the model's, where the system has other values for all models
};

/// The ids in a form of the pieces of the checkpoint's vocabulary.
std::vector<std::int32_t> ids_in_form(std::vector<std::int64_t> const& pieces) {
  std::vector<std::int32_t> ids(
      static_cast<std::size_t>(std::ranges::count_if(pieces, [](auto id) { return id >= 0; })));
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id] >= 0) {
      ids.at(static_cast<std::size_t>(pieces[id])) = static_cast<std::int32_t>(id);
    }
  }
  return ids;
}

/// Writes Marian's files, and describes in `reference` what they compute.
std::int64_t export_to_marian(Execution& execution, Checkpoint const& checkpoint, Config const& config,
                              fs::path const& directory, Reference& reference) {
  if (came_from_marian(checkpoint.contents().origin)) {
    return write_marian(checkpoint, config, directory);
  }
  ModelForm const form = form_for_marian(checkpoint, config);
  fs::path const run = directory / "form";
  Checkpoint const formed = Checkpoint::open(write_form(execution, checkpoint, config, form, run));
  std::int64_t const tensors = write_marian(formed, form.config, directory);
  fs::remove_all(run);
  reference.exported_pieces = {ids_in_form(form.source_pieces), ids_in_form(form.target_pieces)};
  reference.pieces = reference.exported_pieces;
  std::iota(reference.pieces.source.begin(), reference.pieces.source.end(), 0);
  std::iota(reference.pieces.target.begin(), reference.pieces.target.end(), 0);
  for (ConfigDifference const& key : differences(form.config, in_form_of(marian_family(), config))) {
    if (key.key == "model.position_frequencies" || key.key == "model.norm_epsilon") {
      reference.keys.push_back(fmt::format("{}={}", key.key, key.after));
    }
  }
  return tensors;
}

void write_huggingface(Execution& execution, Checkpoint const& checkpoint, Config const& config,
                       ExportOptions const& options, fs::path const& directory, ExportedModel& result) {
  FamilyForm chosen = choose_family(options.family, checkpoint, config);
  json::object& made = chosen.config_json;
  result.family = chosen.family.model_type;
  made["torch_dtype"] = options.dtype;
  auto files = vocabulary_files(chosen.family, checkpoint.contents().vocabulary(), checkpoint.contents().origin, made);
  if (!checkpoint.contents().origin.contains("config.json")) {
    files["generation_config.json"] = generation_config(made, config.model);
  }
  for (auto const& [name, bytes] : files) {
    replace_file(directory / name, bytes);
  }
  replace_file(directory / "config.json", json::serialize(made) + "\n");
  fs::path const run = directory / "form";
  std::optional<Checkpoint> const form = in_form(execution, checkpoint, config, chosen.config, run);
  result.tensors =
      write_tensors(form ? *form : checkpoint, {chosen.family, chosen.config.model, made}, options, directory);
  fs::remove_all(run);
}

/// Without places in data and losses.
CheckpointContents contents_of_model(Checkpoint const& checkpoint) {
  CheckpointContents contents = checkpoint.contents();
  contents.cursor.clear();
  contents.losses = {};
  contents.state_begins.clear();
  return contents;
}

/// The models that texts are encoded and decoded with; SentencePiece reads its own.
void write_vocabulary_models(Checkpoint const& checkpoint, fs::path const& directory) {
  replace_file(directory / "source.model", checkpoint.contents().source_model);
  replace_file(directory / "target.model", checkpoint.contents().target_model);
}

/// The same for CTranslate2, which has no tokenizer: models of SentencePiece, or tokenizer.json for `tokenizers`.
void write_tokenizers(Checkpoint const& checkpoint, fs::path const& directory) {
  Vocabulary const vocabulary = checkpoint.contents().vocabulary();
  bool const pairs = !stored_config(checkpoint).model.is_decoder_only();
  bool const is_json = vocabulary.target.model().starts_with('{');
  if (!is_json) {
    write_vocabulary_models(checkpoint, directory);
  } else if (vocabulary.joint()) {
    replace_file(directory / "tokenizer.json", tokenizer_json_of(vocabulary.target, pairs));
  } else {
    replace_file(directory / "source.tokenizer.json", tokenizer_json_of(vocabulary.source, pairs));
    replace_file(directory / "target.tokenizer.json", tokenizer_json_of(vocabulary.target, pairs));
  }
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
  MadeTensors again(tensors_like(checkpoint), [&](StreamedTensor const& tensor, IndexRange const& elements,
                                                  std::span<float> into) { files.read(tensor.name, elements, into); });
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
  MadeTensors tensors = averaged_tensors(model, dtype == "float32" ? DType::float32 : DType::bfloat16);
  fs::path const store = directory / "store";
  fs::path const written = CheckpointStore(store, 2).commit(Communicator::self(), contents, tensors, 1).directory;
  for (auto const& entry : fs::directory_iterator(written)) {
    fs::rename(entry.path(), directory / entry.path().filename());
  }
  fs::remove_all(store);
  return std::ssize(tensors.tensors());
}

/// The largest difference between the logits of two probes, and the largest logit.
std::pair<double, double> compare(std::vector<float> const& before, std::vector<float> const& after) {
  double largest = 0;
  double difference = before.size() == after.size() ? 0 : INFINITY;
  for (std::size_t index = 0; index < std::min(before.size(), after.size()); ++index) {
    largest = std::max(largest, std::abs(static_cast<double>(before[index])));
    difference = std::max(difference, std::abs(static_cast<double>(before[index]) - static_cast<double>(after[index])));
  }
  return {difference, largest};
}

/// Reads the files back, unless write_plain did, with these keys, and computes the logits of the probe.
std::vector<float> logits_of_files(Execution& execution, ExportOptions const& options, Reference const& reference,
                                   std::vector<std::string> const& keys, fs::path const& exported) {
  fs::path const run = options.format == "heddle" ? exported : exported / "probe";
  if (is_peft(exported)) {
    import_peft(execution, exported, reference.model.checkpoint, run, {.overrides = {"adapter.save_base=false"}});
  } else if (!fs::exists(run)) {
    import_model(execution, exported, run, {.overrides = keys});
  }
  TrainedModelOptions theirs = options.model;
  theirs.checkpoint = run.string();
  theirs.which = "auto";  // it has one checkpoint, which no validation marked
  std::vector<float> logits = probe_logits(execution, theirs, reference.exported_pieces);
  fs::remove_all(exported / "probe");
  return logits;
}

/// Compares the logits of a probe. Returns the largest difference.
double compare_logits(Execution& execution, ExportOptions const& options, Reference const& reference,
                      fs::path const& exported) {
  std::vector<float> const before = probe_logits(execution, reference.model, reference.pieces);
  auto const [difference, largest] =
      compare(before, logits_of_files(execution, options, reference, reference.keys, exported));
  double const rounding = options.dtype == "float32" ? 1e-5 : options.dtype == "float16" ? 1e-2 : 1e-1;
  if (!(difference <= rounding * std::max(largest, 1.0))) {
    throw Error(
        "verification failed: the exported model, read back, gives different logits (difference {:.3g}, "
        "largest logit {:.3g})",
        difference, largest);
  }
  if (!reference.keys.empty()) {
    std::string const keys = boost::replace_all_copy(fmt::format("{}", fmt::join(reference.keys, ", ")), "=", " = ");
    warn(fmt::format(
        "Marian has no {}: it computes with model.position_frequencies = tensor2tensor and "
        "model.norm_epsilon = 1e-6. Its logits of a probe are at most {:.2g} from the model's, of which the "
        "largest is {:.2g}. For equal ones train with these keys (heddle init --export marian)",
        keys, compare(before, logits_of_files(execution, options, reference, {}, exported)).first, largest));
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
    throw UsageError("--format {}: possible are {}", options.format, fmt::join(formats, ", "));
  }
  if (!options.family.empty() && !is_one_of({"huggingface", "peft"})) {
    throw UsageError("--family is for the formats huggingface and peft; {} has one form for all models",
                     options.format);
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
    throw ConfigError("{}: {}", checkpoint.directory().string(),
                      adapters ? "has adapters: --merge folds them into the weights, --format peft writes them alone"
                               : "has no adapters, which --merge and --format peft are for");
  }
}

/// CTranslate2's models have a bias against single tokens, and no place for other limits of generation.
void warn_of_limits(Vocabulary const& vocabulary) {
  TextForm const& form = vocabulary.target.form();
  auto const is_long = [](auto const& sequence) { return sequence.size() > 1; };
  if (std::ranges::any_of(form.suppressed, is_long) || !form.suppressed_first.empty()) {
    warn(
        "bad_words_ids of several tokens and begin_suppress_tokens are not in CTranslate2's model: give them to "
        "translate_batch, as suppress_sequences");
  }
  if (form.ends.size() > 1) {
    warn("CTranslate2's model has one end token: give generate_batch or translate_batch the others as end_token");
  }
}

std::int64_t write_adapters(Checkpoint const& checkpoint, Config const& config, ExportOptions const& options,
                            fs::path const& directory) {
  FamilyForm const chosen = choose_family(options.family, checkpoint, config);
  require_same_form(chosen, config);
  return write_peft(checkpoint, {chosen.family, config.model, chosen.config_json}, options, directory);
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
    std::vector<std::string> obstacles = obstacles_of(family, in_form_of(family, config));
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

FamilyForm choose_family(std::string wanted, Checkpoint const& checkpoint, Config const& config) {
  auto const origin = checkpoint.contents().origin.find("config.json");
  if (wanted.empty() && origin != checkpoint.contents().origin.end()) {
    wanted = family_of(json_object_of(origin->second, "config.json")).model_type;
  }
  if (!wanted.empty()) {
    Family const& family = family_named(wanted);
    Config form = in_form_of(family, config);
    json::object made = config_json(family, form);
    if (origin != checkpoint.contents().origin.end()) {
      restore_keys(family, json::parse(origin->second).as_object(), made);
    }
    return {family, std::move(form), std::move(made)};
  }
  auto const [family, obstacles] = nearest_family(config, checkpoint.contents().vocabulary());
  if (family == nullptr || !obstacles.empty()) {
    throw ConfigError("{}: no family of transformers has this model; --format safetensors writes any.{}",
                      checkpoint.directory().string(),
                      family == nullptr ? "" : fmt::format(" The nearest family:\n  {}", fmt::join(obstacles, "\n  ")));
  }
  Config form = in_form_of(*family, config);
  json::object made = config_json(*family, form);
  return {*family, std::move(form), std::move(made)};
}

void require_same_form(FamilyForm const& chosen, Config const& config) {
  if (chosen.config.model != config.model) {
    throw ConfigError(
        "a model of the family {} has its columns or positions in another form, in which adapters are not "
        "exchanged alone: export --merge writes the model with them",
        chosen.family.model_type);
  }
}

namespace {

/// Exports once; `chosen` is the checkpoint, as soon as there is one. It is read by its name again for the comparison.
ExportedModel export_once(Execution& execution, ExportOptions const& options, fs::path& chosen) {
  PendingDirectory directory(options.directory);
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
  Reference reference{.model = options.model};
  reference.model.checkpoint = result.checkpoint.string();
  if (options.format == "ctranslate2") {
    result.tensors = write_ctranslate2(checkpoint, config, options.dtype, directory.path());
    write_tokenizers(checkpoint, directory.path());
    warn_of_limits(checkpoint.contents().vocabulary());
  } else if (options.format == "marian") {
    if (options.dtype != "float32") {
      throw UsageError("--dtype " + options.dtype + ": Marian's models are float32");
    }
    result.tensors = export_to_marian(execution, checkpoint, config, directory.path(), reference);
  } else if (options.format == "huggingface") {
    write_huggingface(execution, checkpoint, config, options, directory.path(), result);
  } else if (options.format == "peft") {
    result.tensors = write_adapters(checkpoint, config, options, directory.path());
  } else if (options.format == "safetensors") {
    result.tensors = write_plain(checkpoint, options, directory.path(), directory.path() / "probe");
  } else {
    result.tensors = write_stripped(std::move(checkpoint), options.dtype, directory.path());
  }
  fs::remove_all(merged_run);
  if (options.format != "ctranslate2") {
    result.largest_difference = compare_logits(execution, options, reference, directory.path());
  }
  directory.commit();
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
