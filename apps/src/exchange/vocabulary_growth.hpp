#pragma once

#include <filesystem>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <heddle/model.hpp>
#include <string>
#include <vector>

namespace heddle {

struct Execution;

struct VocabularyGrowth {
  TrainedModelOptions model;
  std::vector<std::string> pieces;
  std::vector<std::string> languages = {};  ///< tokens of languages, after the pieces
  bool source = true;                       ///< to the source's vocabulary
  bool target = true;                       ///< to the target's; a joint one takes both
  std::filesystem::path run;
};

/// A run with more pieces.
struct GrownModel {
  std::filesystem::path checkpoint;
  std::vector<std::string> tables;  ///< the parameters that have new rows
  Vocabulary before;
};

/// Makes a run of a checkpoint with more pieces in its vocabulary: a checkpoint of step 0, config.toml, source.model
/// and target.model. Each parameter with rows for the vocabulary gets rows for the new pieces, each the mean of the
/// rows of its parts (parts_of), and for new languages, each the mean of all languages; all other numbers stay.
/// Plug-ins are loaded as TrainedModel::open does. Throws ConfigError where `run` has checkpoints or one side of a
/// joint vocabulary is to grow, DataError as with_pieces and with_languages do. For one rank.
GrownModel extend_vocabulary(Execution& execution, VocabularyGrowth const& growth);

}  // namespace heddle
