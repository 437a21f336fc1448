#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <heddle/core/operations/token_ranking.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/trials/trials.hpp>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace heddle {

namespace {

struct Variant {
  char const* name;
  std::int64_t rows, columns, count;
  double range;                  ///< range of the logits
  std::int64_t first_token = 0;  ///< the end is token 9
  std::int64_t distinct = 0;     ///< logits in a row, which repeat; 0: as many as columns
  std::int64_t guards = 0;       ///< elements between rows
};

constexpr std::array variants{Variant{"likeliest", 7, 301, 1, 4},
                              Variant{"ten", 5, 301, 10, 4, 0, 0, 3},
                              Variant{"equal ones", 5, 301, 10, 4, 0, 3},
                              Variant{"more than there are", 3, 13, 20, 4},
                              Variant{"many", 3, 301, 100, 4},
                              Variant{"many, equal ones", 3, 131, 131, 4, 0, 5},
                              Variant{"a wide range", 3, 67, 4, 80},
                              Variant{"a part with the end", 3, 67, 4, 4, 3},
                              Variant{"a part without the end", 3, 67, 4, 4, 100},
                              Variant{"a large vocabulary", 2, 10007, 10, 6},
                              Variant{"one column", 3, 1, 2, 1},
                              Variant{"no rows", 0, 10, 3, 1}};
constexpr std::int32_t end = 9;

/// A row of the table, by the definition.
std::vector<double> expected_row(TokenRankingCall const& call, std::span<double const> logits, std::int64_t count) {
  constexpr double nothing = -std::numeric_limits<double>::infinity();
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  double const highest = logits[order.front()];
  double const sum = std::accumulate(logits.begin(), logits.end(), 0.0,
                                     [&](double before, double logit) { return before + std::exp(logit - highest); });
  RankingColumns const columns{count};
  std::vector<double> row(static_cast<std::size_t>(columns.width()), nothing);
  auto const at = [&](std::int64_t column) -> double& { return row[static_cast<std::size_t>(column)]; };
  double const log_sum_exp = highest + std::log(sum);
  at(RankingColumns::log_sum_exp) = log_sum_exp;
  std::int64_t const end_column = call.end - call.first_token;
  if (end_column >= 0 && end_column < std::ssize(logits)) {
    at(RankingColumns::end) = logits[static_cast<std::size_t>(end_column)] - log_sum_exp;
  }
  for (std::int64_t index = 0; index < count; ++index) {
    bool const exists = index < std::ssize(order);
    std::size_t const column = exists ? order[static_cast<std::size_t>(index)] : 0;
    at(RankingColumns::tokens + index) =
        exists ? static_cast<double>(column) + static_cast<double>(call.first_token) : -1;
    at(columns.log_probabilities() + index) = exists ? logits[column] - log_sum_exp : nothing;
  }
  return row;
}

Tensor make_logits(Variant const& variant, TrialTensors& tensors, DType dtype) {
  tensors.strided(variant.guards);
  Shape const shape{variant.rows, variant.columns};
  if (variant.distinct == 0) {
    return tensors.input(dtype, shape, -variant.range, variant.range);
  }
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    values.push_back(variant.range * static_cast<double>(i * 7 % variant.distinct) / 8.0);
  }
  return tensors.given(dtype, shape, values);
}

Trial<TokenRanking> make_trial(Variant const& variant, TrialTensors& tensors, DType dtype) {
  TokenRankingCall const call{make_logits(variant, tensors, dtype), variant.first_token, end};
  Tensor const table = tensors.output(DType::float64, {variant.rows, RankingColumns{variant.count}.width()});
  std::vector<double> const logits = to_doubles(call.logits);
  std::vector<double> expected;
  for (std::int64_t row = 0; row < variant.rows; ++row) {
    auto const of_row = std::span(logits).subspan(static_cast<std::size_t>(row * variant.columns),
                                                  static_cast<std::size_t>(variant.columns));
    std::vector<double> const numbers = expected_row(call, of_row, variant.count);
    expected.insert(expected.end(), numbers.begin(), numbers.end());
  }
  Trial<TokenRanking> trial{.problem = {dtype, variant.columns}};
  trial.forward = [=](TokenRanking& kernel, Execution& execution) { kernel.rank(execution, call, table); };
  trial.outputs = {{.name = "table", .value = table, .expected = expected}};
  return trial;
}

}  // namespace

void add_token_ranking_trials(KernelRegistries& registries) {
  auto& registry = registries.of<TokenRanking>();
  for (Variant const& variant : variants) {
    registry.add_trial(fmt::format("{}, {} of {} x {}", variant.name, variant.count, variant.rows, variant.columns),
                       std::bind_front(make_trial, variant));
  }
}

}  // namespace heddle
