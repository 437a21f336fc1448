#include "importing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/io/exchange/exchanged_tensors.hpp>
#include <heddle/io/exchange/marian.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/formats/safetensors.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>
#include <map>
#include <memory>
#include <new>
#include <set>

#include "exchange/probe.hpp"
#include "run/checkpoints/new_run.hpp"
#include "run/checkpoints/provenance.hpp"
#include "run/configuration/config_check.hpp"
#include "run/configuration/registration.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// All that an import needs of another system's files.
struct ForeignModel {
  Family const& family;
  json::object config;
  std::unique_ptr<ForeignTensors> tensors;
  std::vector<fs::path> weights;  ///< the files that have them
  ForeignVocabulary vocabulary;
};

/// Calls `read`, which knows only another system's files: what libraries say of them is about bad data, too, and
/// messages about data name the place.
template <class Read>
auto of_files(fs::path const& from, Read const& read) {
  try {
    return read();
  } catch (DataError const& error) {
    std::string const message = error.what();
    throw DataError(message.find(from.string()) != message.npos ? message
                                                                : fmt::format("{}: {}", from.string(), message));
  } catch (Error const&) {
    throw;
  } catch (std::bad_alloc const&) {
    throw;
  } catch (std::exception const& error) {
    throw DataError("{}: this model cannot be read: {}", from.string(), error.what());
  }
}

/// The run's configuration.
Config config_of(std::vector<std::string> settings, fs::path const& run, std::vector<std::string> const& overrides) {
  settings.push_back(fmt::format("run.directory={}", json::serialize(json::string(run.string()))));
  settings.insert(settings.end(), overrides.begin(), overrides.end());
  return parse_config("", "", settings);
}

/// Calls `use`; messages about keys that `source` gave as `settings` name it, and not `--set`.
template <class Use>
auto of_settings(std::vector<std::string> const& settings, std::string_view source, Use const& use) {
  try {
    return use();
  } catch (ConfigError const& error) {
    std::string message = error.what();
    for (std::string const& setting : settings) {
      boost::replace_all(message, fmt::format("--set {}:", setting), fmt::format("{} gives {}:", source, setting));
    }
    throw ConfigError(message);
  }
}

/// Throws DataError where there are more layers than tensors: to find out what thousands of them lack takes minutes.
void require_layers(Config const& config, ForeignModel const& foreign) {
  std::int64_t const layers = config.model.encoder.layers + config.model.decoder.layers;
  if (layers > std::ssize(foreign.tensors->tensors())) {
    throw DataError("{} gives the model {} layers; its files have {} tensors", foreign.family.source, layers,
                    foreign.tensors->tensors().size());
  }
}

/// The name of a parameter for all layers.
std::string pattern_of(std::string const& parameter) {
  constexpr std::string_view layers = "layers.";
  std::size_t const number = parameter.find(layers) + layers.size();
  std::size_t const end = parameter.find_first_not_of("0123456789", number);
  return parameter.find(layers) == std::string::npos || end == number || end == std::string::npos ||
                 parameter[end] != '.'
             ? parameter
             : parameter.substr(0, number) + "*" + parameter.substr(end);
}

/// The settings of the groups of parameters that training must treat in a way of their own: those whose values are
/// other numbers than the other system's, which it trains; and those that could not go back, as they have a row of
/// zeros which the other system does not store, or are not there at all.
std::vector<std::string> groups_of(ForeignModel const& foreign, ModelConfig const& model,
                                   std::vector<StreamedTensor> const& parameters) {
  std::map<std::vector<std::string>, std::set<std::string>> groups;  // patterns of names, by the groups' rules
  for (StreamedTensor const& parameter : parameters) {
    auto const& [name, change, older, twice] = origin_of(foreign.family, model, parameter.name);
    double const scale = change.scale == nullptr ? 1 : change.scale(foreign.config);
    std::vector<std::string> rules;
    if (name.empty()) {
      rules = {"frozen=true"};
    } else if (change.added_rows == 1 && change.added_value == 0) {
      rules = {"zero_last_row=true"};
    } else if (scale != 1 || change.added != 0) {
      rules = {fmt::format("value_scale={}", scale), fmt::format("value_offset={}", scale * change.added)};
    }
    if (!rules.empty()) {
      groups[rules].insert(pattern_of(parameter.name));
    }
  }
  std::vector<std::string> settings;
  int number = 0;
  for (auto const& [rules, patterns] : groups) {
    bool const of_zeros = rules.front() == "zero_last_row=true";
    std::string const group = fmt::format("optimizer.group.{}", of_zeros ? "start" : fmt::format("import{}", ++number));
    settings.push_back(fmt::format("{}.parameters={}", group, json::serialize(json::value_from(patterns))));
    for (std::string const& rule : rules) {
      settings.push_back(fmt::format("{}.{}", group, rule));
    }
  }
  return settings;
}

/// Whether CTranslate2's converter wrote the directory.
bool is_ctranslate2(fs::path const& directory) {
  auto const has = [&](char const* name) {
    std::error_code ignored;
    return fs::exists(directory / name, ignored);
  };
  return has("model.bin") && (has("source_vocabulary.json") || has("shared_vocabulary.json") ||
                              has("vocabulary.json") || has("source_vocabulary.txt") || has("shared_vocabulary.txt"));
}

json::object read_config_json(fs::path const& directory) {
  fs::path const path = directory / "config.json";
  if (is_ctranslate2(directory)) {
    throw DataError(
        "{}: is a model of CTranslate2 (model.bin), which `heddle export --format ctranslate2` writes and nothing "
        "reads back; import the model that it was converted from",
        directory.string());
  }
  if (std::error_code ignored; !fs::exists(directory, ignored)) {
    throw DataError(missing_file(directory) +
                    "; expected a model's directory. Models of Hugging Face's hub are not downloaded: save one with "
                    "transformers first, `from_pretrained(NAME)` of its class and of AutoTokenizer, then "
                    "`save_pretrained(DIRECTORY)` of both");
  }
  if (fs::is_regular_file(directory)) {
    throw DataError(directory.string() + ": is a file; give its directory, with config.json and the tokenizer's files");
  }
  if (std::error_code ignored; fs::is_symlink(path, ignored)) {
    throw DataError(path.string() +
                    ": is a symbolic link, as all files in the cache of Hugging Face's hub are, and is "
                    "not followed; copy the model with its files first (`cp -rL`)");
  }
  auto const text = read_regular(path, max_origin_bytes);  // of a longer one the end, which is not JSON
  if (!text) {
    throw DataError(
        "{} does not exist; expected a directory with a model as transformers' "
        "save_pretrained writes it: config.json, *.safetensors and the tokenizer's files",
        path.string());
  }
  return json_object_of(*text, path.string());
}

ForeignModel open_huggingface(fs::path const& from) {
  json::object config = read_config_json(from);
  Family const& family = family_of(config);
  auto tensors = std::make_unique<SafetensorsFiles>(SafetensorsFiles::open(from));
  complete_config(family, config, *tensors);
  ForeignVocabulary vocabulary = read_vocabulary(family, config, from);
  std::vector<fs::path> weights = tensors->files();
  return {family, std::move(config), std::move(tensors), std::move(weights), std::move(vocabulary)};
}

ForeignModel open_marian_model(fs::path const& from) {
  MarianModel model = open_marian(from);
  auto tensors = std::make_unique<NpzFile>(std::move(model.tensors));
  std::vector<fs::path> weights{tensors->path()};
  return {marian_family(), std::move(model.config), std::move(tensors), std::move(weights),
          std::move(model.vocabulary)};
}

/// The configuration of an import's run, and the parameters of its model.
std::pair<Config, std::vector<StreamedTensor>> describe_import(Execution& execution, ForeignModel const& foreign,
                                                               Vocabulary const& vocabulary, fs::path const& run,
                                                               ImportOptions const& options) {
  std::vector<std::string> settings = settings_of(foreign.family, foreign.config);
  return of_settings(std::vector(settings), foreign.family.source, [&] {
    Config config = config_of(settings, run, options.overrides);
    require_layers(config, foreign);
    std::vector<StreamedTensor> parameters = parameters_of(execution, config, vocabulary);
    std::vector<std::string> more = groups_of(foreign, config.model, parameters);
    if (!config.model.is_encoder_decoder()) {  // the file gives every key, and this one asks for translations
      more.emplace_back("train.validate_bleu=false");
    }
    if (!more.empty()) {
      settings.insert(settings.end(), more.begin(), more.end());
      config = config_of(settings, run, options.overrides);
    }
    return std::pair(std::move(config), std::move(parameters));
  });
}

/// The configuration as TOML. The groups that an import makes decay as all parameters do, also where a run sets
/// optimizer.weight_decay: theirs is left out unless it was given.
std::string config_toml(Config const& config) {
  std::string text = to_toml(config);
  for (ParameterGroup const& group : config.optimizer.groups) {
    bool const made = group.name == "start" || group.name.starts_with("import");
    std::size_t const section = text.find(fmt::format("\n[optimizer.group.\"{}\"]\n", group.name));
    if (made && !group.places.given("weight_decay") && section != text.npos) {
      std::size_t const line = text.find("\nweight_decay = ", section);
      text.erase(line, text.find('\n', line + 1) - line);
    }
  }
  return text;
}

}  // namespace

std::vector<StreamedTensor> parameters_of(Execution& execution, Config const& config, Vocabulary const& vocabulary) {
  Registries registries;
  register_everything({}, registries, execution);
  std::vector<StreamedTensor> tensors;
  whole_model(config, registries, {vocabulary.source.size(), vocabulary.target.size(), vocabulary.joint()})
      .for_each_parameter([&](ParameterDescription const& parameter) {
        tensors.push_back({parameter.name, parameter.placement.global_shape.to_vector()});
        tensors.back().dtype = parameter.rounded ? DType::bfloat16 : DType::float32;
      });
  return tensors;
}

ImportedModel write_imported(fs::path const& directory, CheckpointContents const& contents, TensorStream& tensors,
                             std::string const& family) {
  ImportedModel imported{.checkpoint = write_new_run(directory, contents, tensors), .family = family};
  for (StreamedTensor const& tensor : tensors.tensors()) {
    ++imported.tensors;
    imported.parameters += Shape(tensor.shape).size();
  }
  return imported;
}

float largest_probe_logit(Execution& execution, fs::path const& checkpoint) {
  TrainedModelOptions model;
  model.checkpoint = checkpoint.string();
  std::vector<float> const logits = probe_logits(execution, model);
  if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
    throw DataError(
        "the model's logits for a few random tokens are not finite: its weights are damaged, or too large for float32");
  }
  return std::abs(*std::ranges::max_element(logits, {}, [](float logit) { return std::abs(logit); }));
}

ImportedModel import_model(Execution& execution, fs::path const& from, fs::path const& run,
                           ImportOptions const& options) {
  ForeignModel const foreign =
      of_files(from, [&] { return is_marian(from) ? open_marian_model(from) : open_huggingface(from); });
  PendingDirectory directory(run);
  CheckpointContents contents;
  contents.source_model = foreign.vocabulary.source_model;
  contents.target_model = foreign.vocabulary.target_model;
  auto const [config, parameters] =
      of_files(from, [&] { return describe_import(execution, foreign, contents.vocabulary(), run, options); });
  contents.state.seed = config.train.seed;
  contents.config = config_toml(config);
  contents.origin = foreign.vocabulary.files;
  record_import(contents.origin, from, foreign.family.model_type, foreign.weights);
  ImportedTensors tensors = of_files(from, [&, &config = config, &parameters = parameters] {
    return ImportedTensors(*foreign.tensors, {foreign.family, config.model, foreign.config}, parameters);
  });
  ImportedModel imported = write_imported(directory.path(), contents, tensors, std::string(foreign.family.model_type));
  if (options.probe) {
    imported.largest_logit = largest_probe_logit(execution, directory.path() / imported.checkpoint);
  }
  directory.commit();
  imported.checkpoint = run / imported.checkpoint;
  return imported;
}

}  // namespace heddle
