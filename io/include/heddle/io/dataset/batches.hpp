#pragma once

#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <span>
#include <vector>

namespace heddle {

/// A pair's cost in a token budget: its longer side with the end token.
std::int64_t pair_tokens(Dataset const& dataset, std::int64_t pair);

/// The sentence pairs of one optimizer step, over all ranks.
struct GlobalBatch {
  std::vector<std::int64_t> pairs;  ///< indices into the dataset; an element's place is its sample number
  std::int64_t target_tokens = 0;   ///< with end tokens: what the loss is divided by
  std::int64_t tokens = 0;          ///< real source and target tokens, with end tokens
};

/// Deals the dataset out in batches, epoch after epoch. The order depends on (seed, epoch) alone, the cuts on the token
/// budget: never on the number of ranks.
class BatchPlanner {
 public:
  struct Limits {
    std::int64_t batch_tokens = 4096;
    std::int64_t max_length = 1024;  ///< pairs with a longer side (end token included) are left out
  };
  /// Throws DataError where no pair is short enough. Keeps a reference to the dataset.
  BatchPlanner(Dataset const& dataset, Limits const& limits, std::uint64_t seed);

  /// The batch at the cursor, which moves behind it. A batch never spans two epochs; it has one pair at least.
  GlobalBatch next();

  std::int64_t epoch() const { return epoch_; }
  std::int64_t position() const { return position_; }
  /// Throws DataError for a position outside the epoch.
  void seek(std::int64_t epoch, std::int64_t position);
  /// Tokens of the longest side of any usable pair, with its end token.
  std::int64_t longest() const;
  /// Of all usable pairs, each counting its longer side.
  std::int64_t tokens() const;
  /// Pairs too long for the model.
  std::int64_t left_out() const { return dataset_.size() - static_cast<std::int64_t>(usable_.size()); }

 private:
  void shuffle();

  Dataset const& dataset_;
  Limits limits_;
  std::uint64_t seed_;
  std::vector<std::int64_t> usable_;
  std::vector<std::int64_t> order_;
  std::int64_t epoch_ = 0;
  std::int64_t position_ = 0;
};

/// Ranges of at most `max_tokens` each (a longer pair stands alone), in order.
std::vector<IndexRange> cut_by_tokens(Dataset const& dataset, std::span<std::int64_t const> pairs,
                                      std::int64_t max_tokens);

/// Exactly `parts` ranges of about equal tokens, in order; some are empty where there are fewer pairs.
std::vector<IndexRange> cut_evenly(Dataset const& dataset, std::span<std::int64_t const> pairs, int parts);

/// The pairs of `range` as one micro-batch; a pair's sample number is its place in `pairs`. With a split of several
/// context ranks: this rank's part.
Pack read_pack(Dataset const& dataset, std::span<std::int64_t const> pairs, IndexRange const& range,
               GroupMember split = {});

}  // namespace heddle
