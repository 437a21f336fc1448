#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

class BlockCache;
class DatasetFile;

/// A number about the text that a dataset was prepared from.
struct TextFinding {
  char const* name;  ///< in the file
  char const* meaning;
};
inline constexpr std::array<TextFinding, 10> text_findings{
    {{"unknown_tokens", "tokens that are unknown"},
     {"unknown_characters", "different characters without a piece"},
     {"repeats", "samples that repeat an earlier one"},
     {"control_characters", "samples with control characters"},
     {"invalid", "samples that were not UTF-8"},
     {"empty", "left out because a side was empty"},
     {"too_long", "left out because a side was too long"},
     {"ratio_1", "target tokens for each source token: of 1 % of the pairs at most"},
     {"ratio_50", "target tokens for each source token: median"},
     {"ratio_99", "target tokens for each source token: of 99 % of the pairs at most"}}};

/// A sentence pair with its fields, whose memory is elsewhere.
struct PairView {
  using Tokens = std::span<int32_t const>;

  PairView(Tokens of_source, Tokens of_target, std::span<TokenLink const> links = {},
           std::span<float const> factors = {})
      : source(of_source), target(of_target), alignment(links), weights(factors) {}
  PairView(Sample const& pair)
      : PairView(pair.source.tokens, pair.target.tokens, pair.alignment, pair.target.weights) {}

  Tokens source, target;
  std::span<TokenLink const> alignment;
  std::span<float const> weights;
};

/// Writes a dataset file, sample by sample, in memory that does not grow with them. Until commit() the file has a
/// temporary name in its directory; without a commit it is deleted.
class DatasetWriter {
 public:
  /// A dataset of sentence pairs with these fields. Throws Error when the file cannot be created.
  DatasetWriter(std::filesystem::path const& path, Vocabulary const& vocabulary, SampleFields const& fields = {});
  /// A dataset of lines of one text; otherwise the same.
  DatasetWriter(std::filesystem::path const& path, Tokenizer const& tokenizer);
  ~DatasetWriter();
  DatasetWriter(DatasetWriter&&) noexcept;
  DatasetWriter& operator=(DatasetWriter&&) noexcept;

  /// Appends one sentence pair, without begin and end tokens. Throws Error for an empty side, an id outside the
  /// vocabulary or of a padding, begin or end token, and a dataset of lines.
  void add(std::span<int32_t const> source, std::span<int32_t const> target);
  /// The same, with the values of the dataset's fields. Throws Error also for a link to a token that is not there, and
  /// for another number of weights than SampleSide says.
  void add(PairView const& pair);
  /// Appends one line, without end token. Throws Error as above, and for a dataset of pairs.
  void add(std::span<int32_t const> line);

  /// The number of pairs or lines added so far.
  int64_t size() const noexcept;

  /// Numbers by names of text_findings, which finish() writes.
  void set_findings(std::map<std::string, double> findings);

  /// Writes everything out, closes the file and syncs it to the disk; nothing can be added afterwards.
  void finish();

  /// Calls finish(), then gives the file its name, replacing an older one.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The number of samples of each length, in tokens, that occurs.
using LengthCounts = std::map<int64_t, int64_t>;

/// The lengths that a dataset counts: of a line; of a pair's source, target, longer side, and of both together.
enum class SampleLength { line, source, target, longer, both };

/// The copies of datasets' files that are read in their place, by the files' paths.
using DatasetCopies = std::map<std::string, std::string>;

/// `path`, or the file `name` in it where it is a directory, as `heddle prepare` writes it.
std::string dataset_in(std::string const& path, char const* name);

/// Sentence pairs, or the lines of one text, as token ids, with their vocabulary: one or several HDF5 files as
/// docs/reference/dataset-format.md describes, the samples of the first before those of the next. Opening takes time
/// and memory that do not grow with the samples. Tokens and offsets are read in blocks; each block is compared with its
/// digest and checked when it is read, and the latest are kept. Must not be used by several threads at once.
class Dataset {
 public:
  static constexpr int64_t default_cache_bytes = int64_t{32} << 20;

  /// Checks HDF5 objects against the allow-list, extents, the vocabulary, the counts of lengths, and the table of
  /// digests against the digest of the whole. Throws DataError with the file, the object and the error, as all reading
  /// does. `memory_bytes` limits the blocks that are kept.
  static Dataset open(std::filesystem::path const& path, int64_t memory_bytes = default_cache_bytes);
  /// Several files, at least one, of the same kind, with the same vocabulary. Where one has a copy that can be read,
  /// that is read; one with a fault is given up for the file itself, which is noted (note_file_trouble).
  static Dataset open(std::span<std::string const> paths, int64_t memory_bytes = default_cache_bytes,
                      DatasetCopies const& copies = {});
  ~Dataset();
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;

  /// The number of sentence pairs or lines, at least 1.
  int64_t size() const noexcept { return ends_.back(); }
  /// Whether it has the lines of one text; otherwise it has sentence pairs.
  bool has_lines() const noexcept;
  /// "sentence pairs" or "lines of text".
  std::string_view kind() const noexcept { return has_lines() ? "lines of text" : "sentence pairs"; }
  /// Its file, or of several files "FIRST and N more files".
  std::string const& name() const noexcept { return name_; }
  /// Names it otherwise in messages.
  void set_name(std::string name) { name_ = std::move(name); }
  /// SHA-256 (hexadecimal) over its content and vocabulary: of one file its attribute `digest`, of several the SHA-256
  /// of their digests in order.
  std::string const& digest() const noexcept { return digest_; }

  /// tokens = those of pair `index`'s source or target, or of line `index`, in [0, size()): at least one, without begin
  /// and end. Their memory is used again. Throws Error for an index outside, and for a side that the dataset lacks.
  void read(SampleLength side, int64_t index, std::vector<int32_t>& tokens) const;
  std::vector<int32_t> source(int64_t index) const { return read(SampleLength::source, index); }
  std::vector<int32_t> target(int64_t index) const { return read(SampleLength::target, index); }
  std::vector<int32_t> line(int64_t index) const { return read(SampleLength::line, index); }
  /// `count` tokens of line `index` from token `begin`. Throws Error for a range outside the line.
  std::vector<int32_t> line(int64_t index, int64_t begin, int64_t count) const;

  /// The fields that samples have besides tokens, in one of its files at least.
  SampleFields const& fields() const noexcept { return fields_; }
  /// Sets the fields of `pair`, which has the tokens of pair `index`: those that are wanted and that its file has; the
  /// others have nothing.
  void read_fields(int64_t index, SampleFields const& wanted, Sample& pair) const;

  /// The tokens of the pair's source or target, or of the line; fast for samples near those asked for before.
  int64_t length(SampleLength side, int64_t index) const;

  /// The numbers of samples by length, without reading them. Throws Error for lengths that it lacks: those of pairs for
  /// lines, and the reverse.
  LengthCounts const& lengths(SampleLength of) const;
  /// All tokens of a side, or of the lines.
  int64_t tokens(SampleLength of) const;

  /// The numbers by names of text_findings that its last file has: none of older files. No digest protects them.
  std::map<std::string, double> const& findings() const noexcept;

  /// Reads and checks every block. Throws DataError for the first that is damaged.
  void verify() const;

  Vocabulary const& vocabulary() const noexcept { return *vocabulary_; }
  /// A dataset of lines has the same for source and target.
  Tokenizer const& source_tokenizer() const noexcept { return vocabulary().source; }
  Tokenizer const& target_tokenizer() const noexcept { return vocabulary().target; }
  bool joint() const noexcept { return vocabulary().joint(); }
  std::string const& vocabulary_digest() const noexcept;

 private:
  struct Sentence;
  struct Place;

  Dataset(std::span<std::string const> paths, int64_t memory_bytes, DatasetCopies const& copies);
  std::vector<int32_t> read(SampleLength side, int64_t index) const;
  Place find(int64_t index) const;
  Sentence find(SampleLength side, int64_t index) const;

  std::vector<std::unique_ptr<DatasetFile>> files_;
  std::vector<int64_t> ends_;  ///< of each file's samples
  std::map<SampleLength, LengthCounts> lengths_;
  SampleFields fields_;
  std::optional<Vocabulary> vocabulary_;
  std::string digest_;
  std::string name_;
  std::unique_ptr<BlockCache> cache_;
};

}  // namespace heddle
