#include "row_rankings.hpp"

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/token_ranking.hpp>
#include <limits>

namespace heddle {

std::vector<RowRanking> RowRankings::rank(LayerContext& context, Tensor const& logits, std::size_t rows) const {
  ArenaScope const scope(context.arena);
  Communicator const& tensor = model_.tensor();
  std::int64_t const width = RankingColumns{static_cast<std::int64_t>(count_)}.width();
  Shape const of_part{static_cast<std::int64_t>(rows), width};
  Tensor const parts = context.arena.allocate(DType::float64, {tensor.size() * of_part[0], width});
  if (!logits.empty()) {
    Tensor const own = tensor.size() > 1 ? context.arena.allocate(DType::float64, of_part) : parts;
    TokenRankingCall const call{logits, model_.first_logit(), end_id_};
    model_.token_ranking().rank(context.execution, call, own);
    if (tensor.size() > 1) {
      tensor.all_gather(own, parts);
    }
  }
  if (model_.pipeline().size() > 1) {
    model_.pipeline().broadcast(parts, model_.last_stage());
  }
  std::vector<double> const numbers = to_host<double>(parts);
  std::vector<RowRanking> rankings;
  for (std::size_t row = 0; row < rows; ++row) {
    auto const of_row = std::span(numbers).subspan(row * static_cast<std::size_t>(width));
    rankings.push_back(merge(of_row, rows * static_cast<std::size_t>(width)));
  }
  return rankings;
}

RowRanking RowRankings::merge(std::span<double const> parts, std::size_t stride) const {
  auto const at = [](std::int64_t column) { return static_cast<std::size_t>(column); };
  RankingColumns const columns{static_cast<std::int64_t>(count_)};
  constexpr double nothing = -std::numeric_limits<double>::infinity();
  double maximum = nothing;
  for (std::size_t part = 0; part < parts.size(); part += stride) {
    maximum = std::max(maximum, parts[part + at(RankingColumns::log_sum_exp)]);
  }
  double sum = 0;
  for (std::size_t part = 0; part < parts.size(); part += stride) {
    sum += std::exp(parts[part + at(RankingColumns::log_sum_exp)] - maximum);
  }
  double const log_sum_exp = maximum + std::log(sum);
  if (!std::isfinite(log_sum_exp)) {
    throw Error("the model's logits are not finite: its parameters are not those of a trained model");
  }
  RowRanking ranking{{}, nothing};
  for (std::size_t part = 0; part < parts.size(); part += stride) {
    double const shift = parts[part + at(RankingColumns::log_sum_exp)] - log_sum_exp;
    ranking.end_log_probability = std::max(ranking.end_log_probability, parts[part + at(RankingColumns::end)] + shift);
    for (std::size_t index = 0; index < count_; ++index) {
      double const token = parts[part + at(RankingColumns::tokens) + index];
      if (token >= 0) {
        ranking.best.push_back(
            {static_cast<std::int32_t>(token), parts[part + at(columns.log_probabilities()) + index] + shift});
      }
    }
  }
  // Parts come in the order of their tokens, so that a stable sort leaves equal ones ordered by id.
  std::stable_sort(ranking.best.begin(), ranking.best.end(),
                   [](RankedToken const& a, RankedToken const& b) { return a.log_probability > b.log_probability; });
  ranking.best.resize(std::min(ranking.best.size(), count_));
  return ranking;
}

}  // namespace heddle
