#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/families/family.hpp>
#include <heddle/io/formats/npz.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>
#include <map>
#include <string>
#include <vector>

// The files of Marian itself (github.com/marian-nmt/marian-dev): model.npz, which has the model's configuration as YAML
// in special:model.yml, vocabularies (SentencePiece's .spm, or .yml with pieces and ids), and decoder.yml, which names
// them. What transformers has made of them is the family "marian" of family.hpp.

namespace heddle {

/// The number that Marian adds to the variance in a norm.
inline constexpr double marian_norm_epsilon = 1e-6;

/// The table of Marian's transformer. Its decoder starts from a zero vector and not from a token: here that is one more
/// piece, with an embedding of 0 and an output bias by which it is never generated.
Family const& marian_family();

/// A model of Marian's files.
struct MarianModel {
  NpzFile tensors;
  boost::json::object config;  ///< as the family's keys read it
  ForeignVocabulary vocabulary;
};

/// Whether the place is a .npz file, or a directory with one and without a config.json.
bool is_marian(std::filesystem::path const& place);
/// Opens such a place. The file .npz.decoder.yml, decoder.yml or config.yml beside the model names the vocabularies;
/// without it they are vocab.spm, vocab.yml, or the only .yml there. Files of other directories are not read: of a path
/// its last part counts. A .yml vocabulary needs source.spm and target.spm, by which text becomes pieces. Throws
/// DataError for what cannot be used, ConfigError for a model that is not a transformer that Heddle can compute.
MarianModel open_marian(std::filesystem::path const& place);

/// A vocabulary of Heddle's own as Marian has it.
struct MarianVocabulary {
  std::string spm;                   ///< the end piece has the id 0, the unknown one 1
  std::string model;                 ///< what an import makes of it: with the piece that the decoder starts from
  std::vector<std::int64_t> pieces;  ///< the ids of its pieces before; -1 for the one that the decoder starts from
};

/// Throws ConfigError for a vocabulary that is not SentencePiece's, or that has tokens around texts or languages.
MarianVocabulary marian_vocabulary_of(std::string const& model);
/// The files of Marian's that a model with these vocabularies would have come from (CheckpointContents::origin).
std::map<std::string, std::string> marian_origin(MarianVocabulary const& source, MarianVocabulary const& target);

/// Whether the files of a checkpoint's origin are Marian's.
bool came_from_marian(std::map<std::string, std::string> const& origin);
/// Writes a model whose vocabulary came from Marian's files so that Marian reads it. Returns the number of tensors.
/// Throws ConfigError for a model that Marian cannot compute, with the key, DataError where its decoder would not start
/// from 0.
std::int64_t write_marian(Checkpoint const& checkpoint, Config const& config, std::filesystem::path const& directory);

}  // namespace heddle
