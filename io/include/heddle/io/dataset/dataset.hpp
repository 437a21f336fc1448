#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/io/text/tokenizer.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Writes a dataset file, sample by sample, in bounded memory. Until commit() the file has a temporary name in its
/// directory; without a commit it is deleted.
class DatasetWriter {
 public:
  /// A dataset of sentence pairs. Throws Error when the file cannot be created.
  DatasetWriter(std::filesystem::path const& path, Vocabulary const& vocabulary);
  /// A dataset of lines of one text; otherwise the same.
  DatasetWriter(std::filesystem::path const& path, Tokenizer const& tokenizer);
  ~DatasetWriter();
  DatasetWriter(DatasetWriter&&) noexcept;
  DatasetWriter& operator=(DatasetWriter&&) noexcept;

  /// Appends one sentence pair, without begin and end tokens. Throws Error for an empty side, an id outside the
  /// vocabulary and a dataset of lines.
  void add(std::span<int32_t const> source, std::span<int32_t const> target);
  /// Appends one line, without end token. Throws Error for an empty line, an id outside the vocabulary and a dataset of
  /// pairs.
  void add(std::span<int32_t const> line);

  /// The number of pairs or lines added so far.
  int64_t size() const noexcept;

  /// Writes everything out, closes the file and syncs it to the disk; nothing can be added afterwards.
  void finish();

  /// Calls finish(), then gives the file its name, replacing an older one.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Sentence pairs, or the lines of one text, as token ids, with their vocabulary: an HDF5 file holding
///   /source/tokens int32 [tokens]   /source/offsets int64 [pairs + 1]   the same under /target
///   /vocabulary/source_model and /vocabulary/target_model uint8: SentencePiece models (the same bytes when joint)
///   attributes of the root: format, format_version (1), vocabulary_digest, joint
/// or, for lines,
///   /text/tokens int32 [tokens]   /text/offsets int64 [lines + 1]   /vocabulary/model uint8
///   attributes of the root: format, format_version (2), vocabulary_digest
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

  /// The number of sentence pairs or lines, at least 1.
  int64_t size() const noexcept;
  /// Whether it has the lines of one text; otherwise it has sentence pairs.
  bool has_lines() const noexcept;
  /// Its content in words: "sentence pairs" or "lines of text".
  std::string_view content() const noexcept { return has_lines() ? "lines of text" : "sentence pairs"; }
  std::filesystem::path const& path() const noexcept;

  /// The tokens of pair `index` in [0, size()), at least one, without begin and end. Throws Error for an index outside
  /// and for a dataset of lines.
  std::vector<int32_t> source(int64_t index) const;
  std::vector<int32_t> target(int64_t index) const;
  /// `count` tokens of line `index` of a dataset of lines from token `begin`. Throws Error for a range outside the
  /// line.
  std::vector<int32_t> line(int64_t index, int64_t begin, int64_t count) const;
  /// All of them.
  std::vector<int32_t> line(int64_t index) const { return line(index, 0, line_length(index)); }

  /// The lengths of the pair's sides, or of the line, from memory.
  int64_t source_length(int64_t index) const;
  int64_t target_length(int64_t index) const;
  int64_t line_length(int64_t index) const;

  /// All tokens of a side, or of the lines.
  int64_t source_tokens() const;
  int64_t target_tokens() const;
  int64_t line_tokens() const;

  Vocabulary const& vocabulary() const noexcept;
  /// Of lines both are the text's.
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
