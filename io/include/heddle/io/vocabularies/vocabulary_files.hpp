#pragma once

#include <boost/json/fwd.hpp>
#include <filesystem>
#include <heddle/io/families/family.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <map>
#include <string>

namespace heddle {

/// Another system's vocabulary as models for Tokenizer whose ids are that system's, and the files that it came in.
struct ForeignVocabulary {
  std::string source_model, target_model;
  std::map<std::string, std::string> files;  ///< for CheckpointContents::origin: by name, config.json among them
};

/// Reads the vocabulary of a model of the family. Throws DataError for files that are missing or cannot be used, and
/// for kinds of vocabularies that Heddle does not have.
ForeignVocabulary read_vocabulary(Family const& family, boost::json::object config,
                                  std::filesystem::path const& directory);

/// Why models of the family cannot have a vocabulary that came from no other system; "" where they can.
std::string vocabulary_obstacle(Family const& family, Vocabulary const& vocabulary);

/// The files by which the other system reads our vocabulary, by name; those in `origin` where the model came from
/// there. Adds the keys of config.json that name special ids and the vocabulary's size. Throws DataError for a
/// vocabulary that the family cannot have, and ConfigError for one whose padding token does not go with the positions.
std::map<std::string, std::string> vocabulary_files(Family const& family, Vocabulary const& vocabulary,
                                                    std::map<std::string, std::string> const& origin,
                                                    boost::json::object& config);

}  // namespace heddle
