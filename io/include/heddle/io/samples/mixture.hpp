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

/// A span of a run with shares of its own: see DataStage.
struct MixtureStage {
  std::string title;                 ///< for messages
  std::vector<double> weights = {};  ///< of each corpus; at least one is above 0
  std::size_t corpus = 0;            ///< whose passes `epochs` counts
  double epochs = 0;                 ///< since the stage's start, after which it ends; 0: not by them
  std::int64_t steps = 0;            ///< the same in steps
};

/// The configuration's key of the corpus with this name: "data.train" for "", or "data.corpus.news".
std::string corpus_key(std::string const& name);

/// The samples that a run draws from: one source, or several that are mixed. A value; copies share the sources.
class Mixture {
 public:
  /// One source, which must outlive the mixture.
  Mixture(SampleSource const& samples);  // NOLINT(google-explicit-constructor): a source is a mixture of itself
  /// At least one, with weights above 0.
  explicit Mixture(std::vector<Corpus> corpora, std::vector<MixtureStage> stages = {})
      : corpora_(std::move(corpora)), stages_(std::move(stages)) {}

  std::vector<Corpus> const& corpora() const { return corpora_; }
  /// The stages, one after another; none: the corpora's weights hold throughout.
  std::vector<MixtureStage> const& stages() const { return stages_; }
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
  std::vector<MixtureStage> stages_;
};

/// The place of a source's next sample in its endless order.
struct SampleCursor {
  std::string corpus = {};  ///< the source's name
  std::int64_t epoch = 0;
  std::int64_t position = 0;  ///< 2^32 times the window, plus the window's usable samples already drawn
  std::int64_t credit = 0;    ///< samples that its share has earned and not drawn, in parts of a sample
  std::string digest = {};    ///< of its dataset; "": unknown

  bool operator==(SampleCursor const&) const = default;
};

/// The place in a mixture's stages.
struct StageCursor {
  std::int64_t stage = 0;   ///< of Mixture::stages; their number after the last one
  std::int64_t steps = 0;   ///< since its start
  double start_epochs = 0;  ///< passes over the corpus that its end counts, at its start

  bool operator==(StageCursor const&) const = default;
};

/// The cursors of a mixture's sources, and its stage.
struct MixtureCursor {
  std::vector<SampleCursor> corpora;
  StageCursor stage = {};

  bool operator==(MixtureCursor const&) const = default;
};

struct CheckpointContents;

/// The place in the training data at which a checkpoint's run continues. Throws DataError, starting with `where`, for a
/// cursor that set_data_cursor did not write.
MixtureCursor data_cursor(CheckpointContents const& contents, std::string const& where);
/// Sets contents.cursor or, for one source without a name, its state's epoch and position; the others are empty or 0.
void set_data_cursor(CheckpointContents& contents, MixtureCursor const& cursor);

}  // namespace heddle
