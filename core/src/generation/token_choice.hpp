#pragma once

#include <cstdint>
#include <heddle/core/generation/generation.hpp>
#include <span>
#include <vector>

namespace heddle {

struct RankedToken {
  std::int32_t token = 0;
  double log_probability = 0;
};

/// The ranking of a row's tokens by their logits.
struct RowRanking {
  std::vector<RankedToken> best;  ///< the most probable first, equal ones by id
  double end_log_probability = 0;
};

/// Ranks the tokens of rows of logits, whose columns may be split over the tensor group and which only the last
/// pipeline stage has. Each part's best tokens and sum of exponentials are exchanged and fetched, never the logits. All
/// ranks get the same result.
class RowRankings {
 public:
  /// The `count` best tokens of each row, or all where there are fewer.
  RowRankings(Model const& model, std::size_t count, std::int32_t end_id)
      : model_(model), count_(count), end_id_(end_id) {}

  /// `logits` is the result of the model's decode for `rows` rows. Waits for them. Collective over the tensor and
  /// pipeline groups. Throws Error, on all ranks, where a logit is NaN or +infinity.
  std::vector<RowRanking> rank(LayerContext& context, Tensor const& logits, std::size_t rows) const;

 private:
  /// A row's rankings by the parts of the vocabulary, those of each part `stride` numbers after those of the one
  /// before, as one.
  RowRanking merge(std::span<double const> parts, std::size_t stride) const;

  Model const& model_;
  std::size_t count_;
  std::int32_t end_id_;
};

/// Throws UsageError for impossible values; the message says what would be right.
void require_valid(Sampling const& sampling);

/// The place of a random number: a source's number and the tokens drawn before.
struct DrawPlace {
  std::int64_t source = 0;
  std::int64_t position = 0;
};

/// Draws one of a row's best tokens, which are in the order of their probabilities.
RankedToken draw_token(Sampling const& sampling, std::span<RankedToken const> best, DrawPlace const& place);

}  // namespace heddle
