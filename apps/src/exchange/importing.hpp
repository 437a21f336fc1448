#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heddle {

struct Execution;

/// A model that was imported.
struct ImportedModel {
  std::filesystem::path checkpoint;
  std::string family;
  std::int64_t tensors = 0;
  std::int64_t parameters = 0;  ///< elements
};

/// Makes a run of another system's model: its checkpoint of step 0 in `run`, and beside it the configuration,
/// config.toml, and the vocabulary, source.model and target.model. `from` is a directory as `save_pretrained` of
/// transformers writes it, or Marian's files (io/exchange/marian.hpp). `overrides` replace keys, "section.key=value".
/// The tensors are read piece by piece. Throws DataError for files that cannot be used, ConfigError where `run` has
/// checkpoints and for a model that the layers cannot compute, which names the key that stands in the way. For one
/// rank.
ImportedModel import_model(Execution& execution, std::filesystem::path const& from, std::filesystem::path const& run,
                           std::vector<std::string> const& overrides = {});

}  // namespace heddle
