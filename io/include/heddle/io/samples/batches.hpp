#pragma once

#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/core/training/planned_packs.hpp>
#include <heddle/io/samples/mixture.hpp>
#include <span>
#include <vector>

namespace heddle {

/// The samples of one optimizer step, over all ranks.
struct GlobalBatch {
  std::vector<SampleId> samples{};  ///< an element's index here is its sample number
  std::vector<SampleCost> costs{};  ///< costs of `samples`
  BatchTokens tokens{};

  /// Appends a sample of the mixture with its cost, and counts its tokens.
  void add(Mixture const& mixture, SampleId const& sample, SampleCost cost);
};

/// A source's samples in their endless order, epoch after epoch, shuffled within windows unless they are a stream.
/// Holds one window at a time.
class SampleStream {
 public:
  struct Entry {
    std::int64_t index = 0;
    SampleCost cost;
  };
  /// Samples with a longer side than `max_length` are left out.
  SampleStream(Corpus corpus, std::int64_t max_length, std::uint64_t seed);

  Corpus const& corpus() const { return corpus_; }
  /// The next sample of this epoch; null at its end.
  Entry const* peek();
  /// Moves past the sample that peek has shown.
  void take() { ++place_; }
  void start_next_epoch() { enter(epoch_ + 1, 0); }

  std::int64_t epoch() const { return epoch_; }
  /// See SampleCursor.
  std::int64_t position() const { return window_ << 32 | place_; }
  /// The epochs before the cursor, the last one in part: 2.25. A window counts by its samples, not by their tokens.
  double epochs() const;
  /// Reads one window. Throws DataError for a position outside the epoch.
  void seek(std::int64_t epoch, std::int64_t position);

 private:
  void enter(std::int64_t epoch, std::int64_t window);

  Corpus corpus_;
  std::int64_t max_length_;
  std::uint64_t key_;
  bool entered_ = false;      ///< a window; false until the first use
  std::vector<Entry> order_;  ///< of the window's usable samples
  std::int64_t epoch_ = 0;
  std::int64_t window_ = 0;
  std::int64_t place_ = 0;  ///< in order_
};

/// Divides samples into batches. The order depends only on the seed and the sources' epochs, the cuts on the token
/// budget: never on the number of ranks. A mixture's samples follow its weights exactly: after n samples each source
/// has given its share of them to within less than one sample for each source (smooth weighted round-robin).
class BatchPlanner {
 public:
  struct Limits {
    std::int64_t batch_tokens = 4096;
    std::int64_t max_length = 1024;  ///< samples with a longer side (end token included) are left out
    double epochs = 0;               ///< see exhausted; 0: no limit

    /// The limits of a run.
    static Limits of(Config const& config) {
      return {config.train.batch_tokens, config.model.max_length, is_stream(config.data) ? 1 : config.train.epochs};
    }
  };
  /// Throws DataError if a source has no sample in its first epoch that is short enough.
  BatchPlanner(Mixture mixture, Limits const& limits, std::uint64_t seed);

  /// Returns the batch at the cursor and moves the cursor past it. It has at least one sample. The batches of a
  /// single source never span two epochs, and a stage ends with the sample that reaches its end. Throws DataError if an
  /// epoch has no usable sample.
  GlobalBatch next();
  /// Whether the cursor is past the last stage or past Limits::epochs. `next` keeps the same shares then.
  bool exhausted() const;
  /// Starts the next stage here; there are stages.
  void end_stage() { enter_stage(stage_.stage + 1); }

  Mixture const& mixture() const { return mixture_; }
  MixtureCursor cursor() const;
  /// Moves the cursor: sources that `cursor` does not name start at their beginning. Throws DataError for a position
  /// outside the epoch.
  void seek(MixtureCursor const& cursor);
  /// The epochs before the cursor, the last one in part: 2.25; of a mixture the mean by weight, of one with stages by
  /// the sources' sizes.
  double epochs() const;
  /// The same for each source of the mixture.
  std::vector<double> corpus_epochs() const;
  /// The totals of the first epoch.
  SampleTotals const& totals() const { return totals_; }

 private:
  /// A source and what its share has earned.
  struct Share {
    SampleStream stream;
    double size = 0;          ///< its samples in an epoch
    std::int64_t weight = 0;  ///< its weight, in parts of a sample, in which credits count, too
    std::int64_t credit = 0;
  };
  void set_weights(std::vector<double> const& weights);
  /// Starts a stage, or ends the last one: see StageCursor.
  void enter_stage(std::int64_t stage);
  /// The stage of the cursor; null without stages, and after the last one.
  MixtureStage const* stage() const;
  GlobalBatch fill();
  Share& next_share();
  /// The next sample of a share's stream, in the next epoch where this one ends; null there if `in_epoch`.
  SampleStream::Entry const* peek(Share& share, bool in_epoch);

  Mixture mixture_;
  Limits limits_;
  SampleTotals totals_;
  std::vector<Share> shares_;  ///< one for each corpus
  std::int64_t weights_ = 0;   ///< their sum
  StageCursor stage_;
};

enum class SampleOrder { by_index, by_length };

/// Returns the samples of a source's first epoch of at most `max_length` tokens, as one batch.
GlobalBatch all_samples(SampleSource const& samples, std::int64_t max_length,
                        SampleOrder order = SampleOrder::by_index);

/// Ranges of samples of these costs with at most `max_tokens` each (a longer sample is a range by itself), in order.
std::vector<IndexRange> cut_by_tokens(std::span<std::int64_t const> costs, std::int64_t max_tokens);

/// Exactly `parts` ranges of samples with about equal tokens, in order; some are empty if there are fewer samples.
std::vector<IndexRange> cut_evenly(std::span<std::int64_t const> costs, int parts);

/// The cut of a validation set: about equal micro-batches of at most `max_tokens`, at most the next multiple of eight
/// of them, and none of them smaller than 512 tokens if that is possible. Where samples are short there are exactly as
/// many, which 2, 4 or 8 data ranks share equally. The cut depends on no number of ranks, and neither does the loss.
MicroBatchCut validation_cut(GlobalBatch const& samples, std::int64_t max_tokens, ContextSplit const& context);

/// Micro-batches of samples.
class SampledMicroBatches final : public MicroBatchSource {
 public:
  SampledMicroBatches(Mixture mixture, GlobalBatch batch, MicroBatchCut const& cut);

  std::int64_t count() const override { return static_cast<std::int64_t>(ranges_.size()); }
  BatchTokens tokens() const override { return batch_.tokens; }
  Pack micro_batch(std::int64_t index) const override;
  /// The size of micro-batch `index`, without reading it.
  PackSize size(std::int64_t index) const;
  /// The tokens of all micro-batches here; a sample counts its longer side.
  std::int64_t longer_tokens() const;
  /// into = the tokens of micro-batch `index`, whole.
  void read(std::int64_t index, PackFields& into) const;

 private:
  Mixture mixture_;
  GlobalBatch batch_;
  ContextSplit context_;
  int passes_;
  std::vector<IndexRange> ranges_;  ///< of batch_.samples
};

}  // namespace heddle
