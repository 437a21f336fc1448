#include "importing.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/exchange/exchanged_tensors.hpp>
#include <heddle/io/exchange/safetensors.hpp>
#include <heddle/io/exchange/vocabulary_files.hpp>
#include <heddle/io/files/regular_file.hpp>

#include "registration.hpp"
#include "training/config_check.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// The parameters of a configuration's model, without memory for them.
std::vector<StreamedTensor> parameters_of(Execution& execution, Config const& config, Vocabulary const& vocabulary) {
  Registries registries;
  register_everything({}, registries, execution);
  std::vector<StreamedTensor> tensors;
  whole_model(config, registries, {vocabulary.source.size(), vocabulary.target.size(), vocabulary.joint()})
      .for_each_parameter([&](ParameterDescription const& parameter) {
        tensors.push_back({parameter.name, parameter.shape.to_vector()});
      });
  return tensors;
}

/// The run's configuration. A message about a key that config.json gave says so.
Config config_of(std::vector<std::string> settings, fs::path const& run, std::vector<std::string> const& overrides) {
  std::vector<std::string> const given = settings;
  settings.push_back(fmt::format("run.directory={}", json::serialize(json::string(run.string()))));
  settings.insert(settings.end(), overrides.begin(), overrides.end());
  try {
    return parse_config("", "", settings);
  } catch (ConfigError const& error) {
    std::string_view const message = error.what();
    for (std::string const& setting : given) {
      if (std::string const origin = "--set " + setting + ":"; message.starts_with(origin)) {
        throw ConfigError(fmt::format("config.json gives {}{}", setting, message.substr(origin.size() - 1)));
      }
    }
    throw;
  }
}

json::object read_config_json(fs::path const& directory) {
  fs::path const path = directory / "config.json";
  auto const text = read_regular(path);
  if (!text) {
    throw DataError(
        fmt::format("{} does not exist; expected a directory with a model as transformers' "
                    "save_pretrained writes it: config.json, *.safetensors and the tokenizer's files",
                    path.string()));
  }
  boost::system::error_code error;
  json::value const parsed = json::parse(*text, error);
  if (error || !parsed.is_object()) {
    throw DataError(
        fmt::format("{} is not a JSON object{}{}", path.string(), error ? ": " : "", error ? error.message() : ""));
  }
  return parsed.get_object();
}

}  // namespace

ImportedModel import_model(Execution& execution, fs::path const& from, fs::path const& run,
                           std::vector<std::string> const& overrides) {
  json::object config_json = read_config_json(from);
  Family const& family = family_of(config_json);
  SafetensorsFiles const files = SafetensorsFiles::open(from);
  if (family.complete != nullptr) {
    family.complete(config_json, files.tensors());
  }
  CheckpointStore store(run / "checkpoints", 2);
  if (auto const newest = store.newest_step()) {
    throw ConfigError(fmt::format("--out {}: there is a run with a checkpoint of step {}; name a new directory",
                                  run.string(), *newest));
  }
  Config const config = config_of(settings_of(family, config_json), run, overrides);
  ForeignVocabulary const vocabulary = read_vocabulary(family, config_json, from);
  CheckpointContents contents;
  contents.state.seed = config.train.seed;
  contents.config = to_toml(config);
  contents.source_model = vocabulary.source_model;
  contents.target_model = vocabulary.target_model;
  contents.origin = vocabulary.files;
  ImportedTensors stream(files, {family, config.model, config_json},
                         parameters_of(execution, config, contents.vocabulary()));
  CommitResult const committed = store.commit(Communicator::self(), contents, stream, 1);
  replace_file(run / "config.toml", contents.config);
  replace_file(run / "source.model", contents.source_model);
  replace_file(run / "target.model", contents.target_model);
  ImportedModel imported{.checkpoint = committed.directory, .family = std::string(family.model_type)};
  for (StreamedTensor const& tensor : stream.tensors()) {
    ++imported.tensors;
    imported.parameters += Shape(tensor.shape).size();
  }
  return imported;
}

}  // namespace heddle
