#pragma once

#include <heddle/core/model/model.hpp>
#include <span>
#include <vector>

#include "token_ranking.hpp"

namespace heddle {

/// The ranking of a row's tokens by their logits.
struct RowRanking {
  std::vector<RankedToken> best;  ///< the most probable first, equal ones by id
  double end_log_probability = 0;
};

/// Ranks the tokens of rows of logits, whose columns may be split over the tensor group and which only the last
/// pipeline stage has. Each part's best tokens and sum of exponentials are exchanged, never the logits. All ranks get
/// the same result.
class RowRankings {
 public:
  /// The `count` best tokens of each row, or all where there are fewer.
  RowRankings(Model const& model, std::size_t count, std::int32_t end_id)
      : model_(model), count_(count), end_id_(end_id), ranking_(count) {}

  /// `logits` is the result of the model's decode for `rows` rows. Collective over the tensor and pipeline groups.
  /// Throws Error where the logits are not finite.
  std::vector<RowRanking> rank(Tensor const& logits, std::size_t rows);

 private:
  /// A row of a part in its message: log Σ exp(logit), the end's log-probability, tokens, log-probabilities.
  struct Layout;

  std::vector<double> rank_part(Tensor const& logits, std::size_t rows);
  template <class Element>
  std::vector<double> rank_elements(std::span<Element const> logits, std::size_t rows);
  /// The logits on the host, in `buffer`, which keeps its memory from step to step.
  template <class Element>
  static std::span<Element const> fetch(Tensor const& logits, std::vector<Element>& buffer);
  /// Combines the parts' tables into one of the whole vocabulary.
  std::vector<double> merge(std::span<double const> parts, std::size_t rows) const;
  std::vector<RowRanking> unpack(std::span<double const> table, std::size_t rows) const;

  Model const& model_;
  std::size_t count_;
  std::int32_t end_id_;
  TokenRanking ranking_;
  std::vector<float> float_logits_;
  std::vector<double> double_logits_;
};

}  // namespace heddle
