#pragma once

#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace heddle {

struct TokenRankingProblem {
  DType dtype = DType::float32;       ///< dtype of the logits
  std::int64_t local_vocabulary = 0;  ///< columns of the logits: this rank's part of the vocabulary
};
std::string describe(TokenRankingProblem const& problem);

struct TokenRankingCall {
  Tensor logits;                 ///< [rows, local vocabulary]
  std::int64_t first_token = 0;  ///< the global id of column 0
  std::int32_t end = -1;         ///< a token whose log-probability is wanted, whatever its rank: a global id
};

/// Columns of a row of the table that a ranking writes.
struct RankingColumns {
  std::int64_t count;  ///< tokens that are ranked

  static constexpr std::int64_t log_sum_exp = 0;  ///< log Σ exp(logit)
  static constexpr std::int64_t end = 1;          ///< the end's log-probability; -infinity where it is elsewhere
  static constexpr std::int64_t tokens = 2;       ///< `count` global ids, the likeliest first; -1: there is none
  /// The column of the tokens' log-probabilities; -infinity where there is no token.
  std::int64_t log_probabilities() const { return tokens + count; }
  std::int64_t width() const { return tokens + 2 * count; }
};

/// Ranks the tokens of each row by their logits, so that generation fetches these few numbers and not the logits.
/// Probabilities are relative to the columns of the call; equally likely tokens are ordered by id.
class TokenRanking : public Operation<TokenRankingProblem> {
 public:
  static constexpr char const* operation = "token_ranking";
  static std::shared_ptr<TokenRanking> observed(ObservedSelection<TokenRanking> selection);
  /// table = [rows, RankingColumns{count}.width()] in float64, contiguous, for a count of at least 1. A row with NaN
  /// or +infinity has a log_sum_exp that is not finite. There is at least one column.
  virtual void rank(Execution& execution, TokenRankingCall const& call, Tensor const& table) = 0;
};

/// The front end of implementations: calls `Functions::rank<Element>(execution, call, table)`.
template <class Functions>
class TokenRankingFrontEnd final : public TokenRanking {
 public:
  bool supports(TokenRankingProblem const& problem) const override { return problem.dtype != DType::int32; }
  void rank(Execution& execution, TokenRankingCall const& call, Tensor const& table) override {
    kernels::with_floating(call.logits.dtype(),
                           [&]<class Element>(Element) { Functions::template rank<Element>(execution, call, table); });
  }
};

}  // namespace heddle
