#include "importing.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/exchange/exchanged_tensors.hpp>
#include <heddle/io/exchange/marian.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/formats/safetensors.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>
#include <memory>

#include "exchange/provenance.hpp"
#include "registration.hpp"
#include "training/config_check.hpp"

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

/// The run's configuration. A message about a key that `source` gave names it.
Config config_of(std::vector<std::string> settings, fs::path const& run, std::vector<std::string> const& overrides,
                 std::string_view source) {
  std::vector<std::string> const given = settings;
  settings.push_back(fmt::format("run.directory={}", json::serialize(json::string(run.string()))));
  settings.insert(settings.end(), overrides.begin(), overrides.end());
  try {
    return parse_config("", "", settings);
  } catch (ConfigError const& error) {
    std::string_view const message = error.what();
    for (std::string const& setting : given) {
      if (std::string const origin = "--set " + setting + ":"; message.starts_with(origin)) {
        throw ConfigError(fmt::format("{} gives {}{}", source, setting, message.substr(origin.size() - 1)));
      }
    }
    throw;
  }
}

json::object read_config_json(fs::path const& directory) {
  fs::path const path = directory / "config.json";
  auto const text = read_regular(path, max_origin_bytes);  // of a longer one the end, which is not JSON
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

ForeignModel open_huggingface(fs::path const& from) {
  json::object config = read_config_json(from);
  Family const& family = family_of(config);
  auto tensors = std::make_unique<SafetensorsFiles>(SafetensorsFiles::open(from));
  if (family.complete != nullptr) {
    family.complete(config, tensors->tensors());
  }
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

}  // namespace

ImportedModel import_model(Execution& execution, fs::path const& from, fs::path const& run,
                           std::vector<std::string> const& overrides) {
  ForeignModel const foreign = is_marian(from) ? open_marian_model(from) : open_huggingface(from);
  CheckpointStore store(run / "checkpoints", 2);
  if (auto const newest = store.newest_step()) {
    throw ConfigError(fmt::format("--out {}: there is a run with a checkpoint of step {}; name a new directory",
                                  run.string(), *newest));
  }
  Config const config = config_of(settings_of(foreign.family, foreign.config), run, overrides, foreign.family.source);
  CheckpointContents contents;
  contents.state.seed = config.train.seed;
  contents.config = to_toml(config);
  contents.source_model = foreign.vocabulary.source_model;
  contents.target_model = foreign.vocabulary.target_model;
  contents.origin = foreign.vocabulary.files;
  record_import(contents.origin, from, foreign.family.model_type, foreign.weights);
  ImportedTensors stream(*foreign.tensors, {foreign.family, config.model, foreign.config},
                         parameters_of(execution, config, contents.vocabulary()));
  CommitResult const committed = store.commit(Communicator::self(), contents, stream, 1);
  replace_file(run / "config.toml", contents.config);
  replace_file(run / "source.model", contents.source_model);
  replace_file(run / "target.model", contents.target_model);
  ImportedModel imported{.checkpoint = committed.directory, .family = std::string(foreign.family.model_type)};
  for (StreamedTensor const& tensor : stream.tensors()) {
    ++imported.tensors;
    imported.parameters += Shape(tensor.shape).size();
  }
  return imported;
}

}  // namespace heddle
