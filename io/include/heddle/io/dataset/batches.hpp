#pragma once

#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/core/training/planned_packs.hpp>
#include <heddle/io/dataset/sample_source.hpp>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// The samples of one optimizer step, over all ranks.
struct GlobalBatch {
  std::int64_t epoch = 0;
  std::vector<std::int64_t> samples{};  ///< indices into the epoch; an element's index here is its sample number
  std::vector<SampleCost> costs{};      ///< of `samples`
  BatchTokens tokens{};

  /// Appends a sample of the source with its cost, and counts its tokens.
  void add(SampleSource const& source, std::int64_t index, SampleCost cost);
};

/// Divides samples into batches, epoch after epoch. The order depends only on (seed, epoch), the cuts on the token
/// budget: never on the number of ranks. It holds one window of the samples at a time.
class BatchPlanner {
 public:
  struct Limits {
    std::int64_t batch_tokens = 4096;
    std::int64_t max_length = 1024;  ///< samples with a longer side (end token included) are left out
  };
  /// Throws DataError if no sample of the first epoch is short enough. Keeps a reference to the samples.
  BatchPlanner(SampleSource const& samples, Limits const& limits, std::uint64_t seed);

  /// Returns the batch at the cursor and moves the cursor behind it. A batch never spans two epochs and has at least
  /// one sample. Throws DataError if an epoch has no usable sample.
  GlobalBatch next();

  std::int64_t epoch() const { return epoch_; }
  /// The place in the epoch: 2^32 times the window, plus the usable samples of the window that are behind the cursor.
  std::int64_t position() const { return window_ << 32 | place_; }
  /// The epochs behind the cursor, the last one in part: 2.25. A window counts by its samples, not by their tokens.
  double epochs() const;
  /// Moves the cursor; reads one window. Throws DataError for a position outside the epoch.
  void seek(std::int64_t epoch, std::int64_t position);
  /// The totals of the first epoch.
  SampleTotals const& totals() const { return totals_; }

 private:
  void enter(std::int64_t epoch, std::int64_t window);
  /// The batch at the cursor; empty where the epoch ends.
  GlobalBatch next_of_epoch();

  SampleSource const& samples_;
  Limits limits_;
  std::uint64_t key_;
  SampleTotals totals_;
  bool entered_ = false;                                    ///< a window; false until the first use
  std::vector<std::pair<std::int64_t, SampleCost>> order_;  ///< of the window's usable samples
  std::int64_t epoch_ = 0;
  std::int64_t window_ = 0;
  std::int64_t place_ = 0;  ///< in order_
};

enum class SampleOrder { by_index, by_length };

/// Returns the first epoch's samples of at most `max_length` tokens, as one batch.
GlobalBatch all_samples(SampleSource const& samples, std::int64_t max_length,
                        SampleOrder order = SampleOrder::by_index);

/// Ranges of samples of these costs with at most `max_tokens` each (a longer sample is a range by itself), in order.
std::vector<IndexRange> cut_by_tokens(std::span<std::int64_t const> costs, std::int64_t max_tokens);

/// Exactly `parts` ranges of samples with about equal tokens, in order; some are empty if there are fewer samples.
std::vector<IndexRange> cut_evenly(std::span<std::int64_t const> costs, int parts);

/// Micro-batches of samples. Keeps a reference to the samples.
class SampledMicroBatches final : public MicroBatchSource {
 public:
  SampledMicroBatches(SampleSource const& samples, GlobalBatch batch, MicroBatchCut const& cut);

  std::int64_t count() const override { return static_cast<std::int64_t>(ranges_.size()); }
  BatchTokens tokens() const override { return batch_.tokens; }
  Pack micro_batch(std::int64_t index) const override;
  /// The size of micro-batch `index`, without reading it.
  PackSize size(std::int64_t index) const;
  /// The tokens of all micro-batches here; a sample counts its longer side.
  std::int64_t longer_tokens() const;
  /// into = the tokens of micro-batch `index`, whole.
  void read(std::int64_t index, PackTokens& into) const;

 private:
  SampleSource const& samples_;
  GlobalBatch batch_;
  GroupMember context_;
  std::vector<IndexRange> ranges_;  ///< of batch_.samples
};

}  // namespace heddle
