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

/// Consecutive rows of logits that are ranked over some of the columns only.
struct RankedColumns {
  std::int64_t rows = 0;
  Tensor columns{};                        ///< int32: their indices
  std::span<std::int32_t const> tokens{};  ///< of the columns, the end token first
};

/// Ranks the tokens of rows of logits, whose columns may be split over the tensor group and which only the last
/// pipeline stage has. Each part's best tokens and sum of exponentials are exchanged and fetched, never the logits. All
/// ranks get the same result. Of several models the sums of their weighted logits are ranked.
class RowRankings {
 public:
  /// The models have one vocabulary and mesh.
  RowRankings(std::vector<WeightedModel> models, std::int32_t end_id) : models_(std::move(models)), end_id_(end_id) {}

  /// The `count` best tokens of each row, or all where there are fewer. `logits` are the results of the models' decode
  /// for `rows` rows; those of several models are overwritten. Waits for them. Collective over the tensor and pipeline
  /// groups. Throws Error, on all ranks, where a logit is NaN or +infinity. If `columns` is not empty, it is for all
  /// rows, and the models are not split.
  std::vector<RowRanking> rank(LayerContext& context, std::span<Tensor const> logits, std::size_t rows,
                               std::size_t count, std::span<RankedColumns const> columns = {}) const;

 private:
  /// A row's ranking, and the logarithm of its sum of exponentials.
  struct Ranked {
    RowRanking ranking;
    double log_sum_exp = 0;
  };
  std::vector<Ranked> rank_one(LayerContext& context, Tensor const& logits, std::size_t rows, std::size_t count,
                               std::span<RankedColumns const> columns) const;
  /// Ranks rows over their columns, whose indices stand for tokens.
  void rank_columns(LayerContext& context, Tensor const& logits, std::span<RankedColumns const> columns,
                    Tensor const& table) const;
  /// A row's rankings by the parts of the vocabulary, those of each part `stride` numbers after those of the one
  /// before, as one.
  Ranked merge(std::span<double const> parts, std::size_t stride, std::size_t count) const;

  std::vector<WeightedModel> models_;
  std::int32_t end_id_;
};

/// Throws UsageError for impossible values; the message says what would be right.
void require_valid(Sampling const& sampling);

/// The place of a random number: a source's number and the tokens drawn before.
struct DrawKey {
  std::int64_t source = 0;
  std::int64_t position = 0;
};

/// Draws one of a row's best tokens, which are in the order of their probabilities.
RankedToken draw_token(Sampling const& sampling, std::span<RankedToken const> best, DrawKey const& place);

}  // namespace heddle
