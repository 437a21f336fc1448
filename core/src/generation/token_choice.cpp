#include "token_choice.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <limits>
#include <numeric>

namespace heddle {

namespace {

/// A number in [0, 1) that depends only on the seed and the place.
double random_number(std::uint64_t seed, DrawKey const& place) {
  auto const words =
      Philox::words(random_key(seed, "generation.sampling"),
                    {static_cast<std::uint32_t>(place.source), static_cast<std::uint32_t>(place.source >> 32),
                     static_cast<std::uint32_t>(place.position), static_cast<std::uint32_t>(place.position >> 32)});
  std::uint64_t const bits = (std::uint64_t{words[0]} << 21) | (words[1] >> 11);
  return std::ldexp(static_cast<double>(bits), -53);
}

}  // namespace

std::vector<RowRanking> RowRankings::rank(LayerContext& context, std::span<Tensor const> logits, std::size_t rows,
                                          std::size_t count, std::span<RankedColumns const> columns) const {
  if (!columns.empty()) {
    auto const size = [](RankedColumns const& each) { return each.tokens.size(); };
    count = std::min(count, size(std::ranges::max(columns, {}, size)));
  }
  std::vector<double> log_sums(rows);  // of an ensemble: Σ weight · log Σ exp(logit)
  for (std::size_t member = 0; models_.size() > 1 && member < models_.size(); ++member) {
    double const weight = models_[member].weight;
    auto const ranked = rank_one(context, logits[member], rows, 1, columns);
    for (std::size_t row = 0; row < rows; ++row) {
      log_sums[row] += weight * ranked[row].log_sum_exp;
    }
    if (!logits[member].empty()) {
      TensorOps& operations = models_[member].model->tensor_ops();
      operations.scale(context.execution, logits[member], weight);
      if (member > 0) {
        operations.add(context.execution, logits.front(), logits[member]);
      }
    }
  }
  std::vector<RowRanking> rankings;
  for (Ranked& ranked : rank_one(context, logits.front(), rows, count, columns)) {
    if (models_.size() > 1) {  // the ranking's log-probabilities are those of a softmax over the sums
      double const shift = ranked.log_sum_exp - log_sums[rankings.size()];
      ranked.ranking.end_log_probability += shift;
      for (RankedToken& token : ranked.ranking.best) {
        token.log_probability += shift;
      }
    }
    rankings.push_back(std::move(ranked.ranking));
  }
  return rankings;
}

std::vector<RowRankings::Ranked> RowRankings::rank_one(LayerContext& context, Tensor const& logits, std::size_t rows,
                                                       std::size_t count,
                                                       std::span<RankedColumns const> columns) const {
  ArenaScope const scope(context.arena);
  Model const& model = *models_.front().model;
  Communicator const& tensor = model.tensor();
  std::int64_t const width = RankingColumns{static_cast<std::int64_t>(count)}.width();
  Shape const of_part{static_cast<std::int64_t>(rows), width};
  Tensor const parts = context.arena.allocate(DType::float64, {tensor.size() * of_part[0], width});
  if (!columns.empty()) {
    rank_columns(context, logits, columns, parts);
  } else if (!logits.empty()) {
    Tensor const own = tensor.size() > 1 ? context.arena.allocate(DType::float64, of_part) : parts;
    TokenRankingCall const call{logits, model.first_logit(), end_id_};
    model.token_ranking().rank(context.execution, call, own);
    if (tensor.size() > 1) {
      tensor.all_gather(own, parts);
    }
  }
  if (model.pipeline().size() > 1) {
    model.pipeline().broadcast(parts, model.last_stage());
  }
  std::vector<double> const numbers = to_host<double>(parts);
  std::vector<Ranked> ranked;
  for (std::size_t row = 0; row < rows; ++row) {
    auto const of_row = std::span(numbers).subspan(row * static_cast<std::size_t>(width));
    ranked.push_back(merge(of_row, rows * static_cast<std::size_t>(width), count));
  }
  std::size_t row = 0;
  for (RankedColumns const& each : columns) {
    for (std::size_t const end = row + static_cast<std::size_t>(each.rows); row < end; ++row) {
      for (RankedToken& token : ranked[row].ranking.best) {
        token.token = each.tokens[static_cast<std::size_t>(token.token)];
      }
    }
  }
  return ranked;
}

void RowRankings::rank_columns(LayerContext& context, Tensor const& logits, std::span<RankedColumns const> columns,
                               Tensor const& table) const {
  Model const& model = *models_.front().model;
  std::int64_t row = 0;
  for (RankedColumns const& each : columns) {
    ArenaScope const scope(context.arena);
    Tensor const own = context.arena.allocate(logits.dtype(), {each.rows, each.columns.size()});
    model.tensor_ops().gather_columns(context.execution, logits.rows(row, each.rows), each.columns, own);
    model.token_ranking().rank(context.execution, {own, 0, 0}, table.rows(row, each.rows));
    row += each.rows;
  }
}

RowRankings::Ranked RowRankings::merge(std::span<double const> parts, std::size_t stride, std::size_t count) const {
  auto const at = [](std::int64_t column) { return static_cast<std::size_t>(column); };
  RankingColumns const columns{static_cast<std::int64_t>(count)};
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
    for (std::size_t index = 0; index < count; ++index) {
      double const token = parts[part + at(RankingColumns::tokens) + index];
      if (token >= 0) {
        ranking.best.push_back(
            {static_cast<std::int32_t>(token), parts[part + at(columns.log_probabilities()) + index] + shift});
      }
    }
  }
  // Parts come in the order of their tokens, so that a stable sort leaves equal ones ordered by id.
  std::ranges::stable_sort(ranking.best, std::greater(), &RankedToken::log_probability);
  ranking.best.resize(std::min(ranking.best.size(), count));
  return {std::move(ranking), log_sum_exp};
}

void require_valid(Sampling const& sampling) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0 || sampling.top_k < 0 || sampling.top_p > 1 ||
      !(sampling.top_p > 0) || !(sampling.min_p >= 0 && sampling.min_p <= 1)) {
    throw UsageError(
        "temperature {}, top-k {}, top-p {}, min-p {}: expected a temperature of at least 0, a top-k of at "
        "least 1 (or 0 for all tokens), a top-p above 0 and at most 1 and a min-p from 0 to 1",
        sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p);
  }
  if (sampling.temperature == 0 && (sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0)) {
    throw UsageError("top-k {}, top-p {} and min-p {} with temperature 0: nothing is drawn; set a temperature above 0",
                     sampling.top_k, sampling.top_p, sampling.min_p);
  }
}

RankedToken draw_token(Sampling const& sampling, std::span<RankedToken const> best, DrawKey const& place) {
  std::vector<double> weights;  // relative to the likeliest token
  for (RankedToken const& token : best) {
    weights.push_back(std::exp((token.log_probability - best.front().log_probability) / sampling.temperature));
  }
  auto const likely = static_cast<std::size_t>(std::ranges::upper_bound(weights, sampling.min_p, std::greater()) -
                                               weights.begin());  // they descend
  std::partial_sum(weights.begin(), weights.end(), weights.begin());
  if (sampling.top_p < 1) {
    auto const last = std::lower_bound(weights.begin(), weights.end(), sampling.top_p * weights.back());
    weights.erase(last + 1, weights.end());
  }
  weights.resize(std::min(weights.size(), likely));
  double const wanted = random_number(sampling.seed, place) * weights.back();
  auto const drawn = std::upper_bound(weights.begin(), weights.end() - 1, wanted);
  return best[static_cast<std::size_t>(drawn - weights.begin())];
}

}  // namespace heddle
