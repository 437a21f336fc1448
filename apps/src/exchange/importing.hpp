#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

struct Execution;

/// A model that was imported.
struct ImportedModel {
  std::filesystem::path checkpoint;
  std::string family;
  std::int64_t tensors = 0;
  std::int64_t parameters = 0;               ///< elements
  std::optional<double> largest_logit = {};  ///< of a probe, if there was one
};

struct ImportOptions {
  std::vector<std::string> overrides = {};  ///< "section.key=value" in place of keys of the model's configuration
  bool probe = false;                       ///< the whole model is loaded once, and computes the logits of a probe
};

/// Makes a run of another system's model: its checkpoint of step 0 in `run`, and beside it the configuration,
/// config.toml, and the vocabulary, source.model and target.model. `from` is a directory as `save_pretrained` of
/// transformers writes it, or Marian's files (io/exchange/marian.hpp). The tensors are read piece by piece. Throws
/// DataError for files that cannot be used, ConfigError where `run` has checkpoints and for a model that the layers
/// cannot compute, which names the key that stands in the way; then nothing is left in `run`. For one rank.
ImportedModel import_model(Execution& execution, std::filesystem::path const& from, std::filesystem::path const& run,
                           ImportOptions const& options = {});

/// The parameters of a configuration's model, without memory for them.
std::vector<StreamedTensor> parameters_of(Execution& execution, Config const& config, Vocabulary const& vocabulary);
/// The largest logit of a probe, by its magnitude, of a model that was imported.
float largest_probe_logit(Execution& execution, std::filesystem::path const& checkpoint);
/// Writes a run of an import, as write_new_run does.
ImportedModel write_imported(std::filesystem::path const& directory, CheckpointContents const& contents,
                             TensorStream& tensors, std::string const& family);

}  // namespace heddle
