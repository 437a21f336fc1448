#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle {

struct RankedToken {
  std::int32_t token = 0;
  double log_probability = 0;
};

/// Picks the most probable tokens of one row of logits after another. Holds working memory: one per thread.
class TokenRanking {
 public:
  explicit TokenRanking(std::size_t count) : count_(count) {}

  /// The `count` most probable tokens (or all, where there are fewer), the most probable first, equal ones by id. Valid
  /// until the next call. Throws Error where the logits are not finite.
  template <class Element>
  std::span<RankedToken const> rank(std::span<Element const> logits);

  /// log Σ exp(logits) of the row ranked last.
  double log_sum_exp() const { return log_sum_exp_; }

 private:
  template <class Element>
  void select(std::span<Element const> logits);
  template <class Element>
  void sort(std::span<Element const> logits);
  void insert(RankedToken const& candidate);

  std::size_t count_;
  std::vector<RankedToken> best_;
  double log_sum_exp_ = 0;
};

extern template std::span<RankedToken const> TokenRanking::rank<float>(std::span<float const>);
extern template std::span<RankedToken const> TokenRanking::rank<double>(std::span<double const>);

}  // namespace heddle
