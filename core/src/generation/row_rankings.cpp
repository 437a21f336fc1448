#include "row_rankings.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heddle {

namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();
constexpr double no_token = -1;

}  // namespace

struct RowRankings::Layout {
  std::size_t count;

  std::size_t log_sum_exp() const { return 0; }
  std::size_t end() const { return 1; }
  std::size_t token(std::size_t index) const { return 2 + index; }
  std::size_t log_probability(std::size_t index) const { return 2 + count + index; }
  std::size_t width() const { return 2 + 2 * count; }
};

std::vector<RowRanking> RowRankings::rank(Tensor const& logits, std::size_t rows) {
  Layout const layout{count_};
  auto const elements = static_cast<std::int64_t>(rows * layout.width());
  std::vector<double> table(static_cast<std::size_t>(elements));
  if (!logits.empty()) {
    table = rank_part(logits, rows);
    Communicator const& tensor = model_.tensor();
    if (tensor.size() > 1) {
      Tensor const parts = Tensor::allocate(DType::float64, {tensor.size(), elements});
      tensor.all_gather(from_host<double>(table, {elements}), parts);
      table = merge(to_host<double>(parts), rows);
    }
  }
  if (model_.pipeline().size() > 1) {
    Tensor const shared = from_host<double>(table, {elements});
    model_.pipeline().broadcast(shared, model_.last_stage());
    table = to_host<double>(shared);
  }
  return unpack(table, rows);
}

std::vector<double> RowRankings::rank_part(Tensor const& logits, std::size_t rows) {
  switch (logits.dtype()) {
    case DType::float64:
      return rank_elements<double>(fetch(logits, double_logits_), rows);
    case DType::bfloat16: {
      auto const narrow = to_host<BFloat16>(logits);
      float_logits_.resize(narrow.size());
      std::transform(narrow.begin(), narrow.end(), float_logits_.begin(),
                     [](BFloat16 value) { return static_cast<float>(value); });
      return rank_elements<float>(float_logits_, rows);
    }
    default:
      return rank_elements<float>(fetch(logits, float_logits_), rows);
  }
}

template <class Element>
std::span<Element const> RowRankings::fetch(Tensor const& logits, std::vector<Element>& buffer) {
  buffer.resize(static_cast<std::size_t>(logits.size()));
  copy_to_host(buffer.data(), logits);
  return buffer;
}

template <class Element>
std::vector<double> RowRankings::rank_elements(std::span<Element const> logits, std::size_t rows) {
  Layout const layout{count_};
  std::size_t const columns = logits.size() / rows;
  std::int64_t const end = end_id_ - model_.first_logit();
  bool const has_end = end >= 0 && end < static_cast<std::int64_t>(columns);
  std::vector<double> table(rows * layout.width(), nothing);
  for (std::size_t row = 0; row < rows; ++row) {
    double* const out = table.data() + row * layout.width();
    auto const row_logits = logits.subspan(row * columns, columns);
    auto const best = ranking_.rank(row_logits);
    out[layout.log_sum_exp()] = ranking_.log_sum_exp();
    if (has_end) {
      out[layout.end()] = static_cast<double>(row_logits[static_cast<std::size_t>(end)]) - ranking_.log_sum_exp();
    }
    for (std::size_t index = 0; index < count_; ++index) {
      bool const exists = index < best.size();
      out[layout.token(index)] = exists ? best[index].token + static_cast<double>(model_.first_logit()) : no_token;
      out[layout.log_probability(index)] = exists ? best[index].log_probability : nothing;
    }
  }
  return table;
}

std::vector<double> RowRankings::merge(std::span<double const> parts, std::size_t rows) const {
  Layout const layout{count_};
  std::size_t const part_size = rows * layout.width();
  std::vector<double> table(part_size, nothing);
  for (std::size_t row = 0; row < rows; ++row) {
    double* const out = table.data() + row * layout.width();
    double maximum = nothing;
    for (std::size_t part = row * layout.width(); part < parts.size(); part += part_size) {
      maximum = std::max(maximum, parts[part + layout.log_sum_exp()]);
    }
    double sum = 0;
    for (std::size_t part = row * layout.width(); part < parts.size(); part += part_size) {
      sum += std::exp(parts[part + layout.log_sum_exp()] - maximum);
    }
    out[layout.log_sum_exp()] = maximum + std::log(sum);
    std::vector<RankedToken> candidates;
    for (std::size_t part = row * layout.width(); part < parts.size(); part += part_size) {
      double const shift = parts[part + layout.log_sum_exp()] - out[layout.log_sum_exp()];
      out[layout.end()] = std::max(out[layout.end()], parts[part + layout.end()] + shift);
      for (std::size_t index = 0; index < count_; ++index) {
        double const token = parts[part + layout.token(index)];
        if (token != no_token) {
          candidates.push_back({static_cast<std::int32_t>(token), parts[part + layout.log_probability(index)] + shift});
        }
      }
    }
    // Parts come in the order of their tokens, so that a stable sort leaves equal ones ordered by id.
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](RankedToken const& a, RankedToken const& b) { return a.log_probability > b.log_probability; });
    for (std::size_t index = 0; index < count_; ++index) {
      bool const exists = index < candidates.size();
      out[layout.token(index)] = exists ? candidates[index].token : no_token;
      out[layout.log_probability(index)] = exists ? candidates[index].log_probability : nothing;
    }
  }
  return table;
}

std::vector<RowRanking> RowRankings::unpack(std::span<double const> table, std::size_t rows) const {
  Layout const layout{count_};
  std::vector<RowRanking> rankings(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    auto const values = table.subspan(row * layout.width(), layout.width());
    rankings[row].end_log_probability = values[layout.end()];
    for (std::size_t index = 0; index < count_ && values[layout.token(index)] != no_token; ++index) {
      rankings[row].best.push_back(
          {static_cast<std::int32_t>(values[layout.token(index)]), values[layout.log_probability(index)]});
    }
  }
  return rankings;
}

}  // namespace heddle
