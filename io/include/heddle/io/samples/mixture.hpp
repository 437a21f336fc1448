#pragma once

#include <compare>
#include <cstdint>
#include <heddle/io/samples/sample_source.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// A sample of a mixture.
struct SampleId {
  std::int32_t corpus = 0;  ///< number of its source in the mixture
  std::int64_t epoch = 0;   ///< the epoch of its source
  std::int64_t index = 0;   ///< in the epoch

  auto operator<=>(SampleId const&) const = default;
};

/// A source of samples in a mixture.
struct Corpus {
  std::shared_ptr<SampleSource const> samples;
  std::string name = {};  ///< the NAME of [data.corpus."NAME"]; "": the only one
  double weight = 1;      ///< its share of the samples, relative to the others'
};

/// The configuration's key of the corpus with this name: "data.train" for "", or "data.corpus.news".
std::string corpus_key(std::string const& name);

/// The samples that a run draws from: one source, or several that are mixed. A value; copies share the sources.
class Mixture {
 public:
  /// One source, which must outlive the mixture.
  Mixture(SampleSource const& samples);  // NOLINT(google-explicit-constructor): a source is a mixture of itself
  /// At least one, with weights above 0.
  explicit Mixture(std::vector<Corpus> corpora) : corpora_(std::move(corpora)) {}

  std::vector<Corpus> const& corpora() const { return corpora_; }
  SampleCost cost(SampleId const& sample) const { return source(sample).cost(sample.epoch, sample.index); }
  std::int64_t predicted(SampleId const& sample) const { return source(sample).predicted(sample.epoch, sample.index); }
  /// into = the tokens of these samples, whose sample numbers count from `first_number`.
  void read(std::span<SampleId const> samples, std::int32_t first_number, PackFields& into) const;
  /// The totals of all sources' first epochs.
  SampleTotals totals(std::int64_t max_length) const;
  /// The sources' warnings.
  std::vector<std::string> warnings() const;
  /// "400 sentence pairs", or "news: 400 sentence pairs, 75.0 %; web: …".
  std::string describe() const;

 private:
  SampleSource const& source(SampleId const& sample) const {
    return *corpora_[static_cast<std::size_t>(sample.corpus)].samples;
  }

  std::vector<Corpus> corpora_;
};

/// The place of a source's next sample in its endless order.
struct SampleCursor {
  std::string corpus = {};  ///< the source's name
  std::int64_t epoch = 0;
  std::int64_t position = 0;  ///< 2^32 times the window, plus the window's usable samples already drawn
  std::int64_t credit = 0;    ///< samples that its share has earned and not drawn, in parts of a sample

  bool operator==(SampleCursor const&) const = default;
};

/// The cursors of a mixture's sources.
using MixtureCursor = std::vector<SampleCursor>;

struct CheckpointContents;

/// The place in the training data at which a checkpoint's run continues. Throws DataError, starting with `where`, for a
/// cursor that set_data_cursor did not write.
MixtureCursor data_cursor(CheckpointContents const& contents, std::string const& where);
/// Sets contents.cursor or, for one source without a name, its state's epoch and position; the others are empty or 0.
void set_data_cursor(CheckpointContents& contents, MixtureCursor const& cursor);

}  // namespace heddle
