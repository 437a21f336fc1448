#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/io/text/tokenizer.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// Writes a dataset file, pair by pair, in bounded memory. Until commit() the file has a temporary name in its
/// directory; without a commit it is deleted.
class DatasetWriter {
 public:
  /// Throws Error when the file cannot be created.
  DatasetWriter(std::filesystem::path const& path, Vocabulary const& vocabulary);
  ~DatasetWriter();
  DatasetWriter(DatasetWriter&&) noexcept;
  DatasetWriter& operator=(DatasetWriter&&) noexcept;

  /// Appends one sentence pair, without begin and end tokens. Throws Error for an empty side or an id outside the
  /// vocabulary.
  void add(std::span<int32_t const> source, std::span<int32_t const> target);

  /// The number of pairs added so far.
  int64_t size() const noexcept;

  /// Writes everything out, closes the file and syncs it to the disk; nothing can be added afterwards.
  void finish();

  /// Calls finish(), then gives the file its name, replacing an older one.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Sentence pairs as token ids, with their vocabulary: an HDF5 file holding
///   /source/tokens int32 [tokens]   /source/offsets int64 [pairs + 1]   the same under /target
///   /vocabulary/source_model and /vocabulary/target_model uint8: SentencePiece models (the same bytes when joint)
///   attributes of the root: format, format_version, vocabulary_digest, joint
/// Offsets stay in memory; tokens are kept whole if they fit in memory_bytes, else read in blocks of which the latest
/// are kept. Must not be used by several threads at once.
class Dataset {
 public:
  /// Checks the file before anything of it is used: HDF5 objects against the allow-list, extents, offsets, the
  /// vocabulary and its digest; token ids against the vocabulary (in a file too large to keep, each block when it is
  /// read). Throws DataError with the file, the object and the error. `memory_bytes` limits the tokens that are kept
  /// in memory.
  static Dataset open(std::filesystem::path const& path, int64_t memory_bytes = int64_t{1} << 30);
  ~Dataset();
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;

  /// The number of sentence pairs, at least 1.
  int64_t size() const noexcept;

  /// The tokens of pair `index` in [0, size()), at least one, without begin and end. Throws Error for an index outside.
  std::vector<int32_t> source(int64_t index) const;
  std::vector<int32_t> target(int64_t index) const;

  /// The lengths of the pair's sides, from memory.
  int64_t source_length(int64_t index) const;
  int64_t target_length(int64_t index) const;

  /// All tokens of a side.
  int64_t source_tokens() const noexcept;
  int64_t target_tokens() const noexcept;

  Vocabulary const& vocabulary() const noexcept;
  Tokenizer const& source_tokenizer() const noexcept { return vocabulary().source; }
  Tokenizer const& target_tokenizer() const noexcept { return vocabulary().target; }
  bool joint() const noexcept;
  std::string const& vocabulary_digest() const noexcept;

 private:
  struct State;
  explicit Dataset(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace heddle
