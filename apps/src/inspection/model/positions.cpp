#include "positions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/attention/attention_core.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <set>

#include "inspection/page/matrix.hpp"

namespace heddle {
namespace {

constexpr std::int64_t max_drawn_positions = 128;
constexpr std::int64_t drawn_distance = 64;

boost::json::object entry(std::string_view kind, std::string const& name, std::string_view row_name,
                          std::string_view column_name, std::string const& note) {
  return {{"kind", kind},      {"name", name}, {"row_name", row_name}, {"column_name", column_name},
          {"first_column", 0}, {"note", note}};
}

/// Symmetric about 0, so that 0 has the neutral colour.
ValueRange around_zero(std::vector<double> const& values) {
  ValueRange const range = range_of(values);
  double const reach = std::max(std::abs(range.min), std::abs(range.max));
  return {-reach, reach};
}

boost::json::object table_entry(std::string_view kind, std::string const& name, std::vector<double> const& values,
                                std::int64_t columns, std::string const& note) {
  boost::json::object result = entry(kind, name, "position", kind == "rotary" ? "pair" : "column", note);
  result["matrix"] = matrix_to_json(values, columns, around_zero(values));
  return result;
}

/// Positions that are added to embeddings. Fixed ones are the same in all stacks.
void add_tables(boost::json::array& all, Config const& config, std::vector<Tensor> const& added) {
  bool const fixed = config.model.positions == Positions::sinusoidal;
  for (std::size_t index = 0; index < std::min(added.size(), config.model.stacks.size()); ++index) {
    if (added[index].empty() || (fixed && index > 0)) {
      continue;
    }
    std::int64_t const rows = std::min(added[index].dim(0), max_drawn_positions);
    all.push_back(table_entry(name_of(config.model.positions), fixed ? "all stacks" : config.model.stacks[index],
                              to_doubles(added[index].rows(0, rows)), added[index].dim(1),
                              fmt::format("added to the embeddings; the first {} of {} positions", readable_count(rows),
                                          readable_count(added[index].dim(0)))));
  }
}

/// The columns of a head of the first layer that attends to its own stack.
std::int64_t head_columns(ModelConfig const& model) {
  std::string const& name = model.stacks.front();
  StackMember const stack = stack_kind(name).config;
  return attention_sizes(layer_config(model, stack, 0), layer_options(model.*stack, name, 0, "self_attention"))
      .head_dim;
}

bool hides_later_keys(AttentionMask const& mask) {
  return mask.is(MaskKind::causal) || mask.hides_later;
}

/// The note beside a bias of distances up to `reach`, of which those up to `drawn` are drawn.
std::string bias_note(std::int64_t reach, std::int64_t drawn, std::int64_t max_length, bool causal) {
  std::string note = "added to the scores of each head by the distance of key and query";
  if (drawn < reach) {
    note += fmt::format("; drawn as far as {}", drawn);
  }
  if (reach < max_length - 1) {
    note += fmt::format("; keys that are farther away than {} have the bias of {}", readable_count(reach),
                        readable_count(reach));
  }
  return note + (causal ? "; later keys, which the mask hides, are left out" : "");
}

/// The bias [heads, 2 r + 1] of a stack, as far as drawn_distance; without later keys where the stack is `causal`.
boost::json::object bias_entry(std::string const& kind, std::string const& stack, ObservedAttention const& call,
                               std::int64_t max_length, bool causal) {
  auto const columns = static_cast<std::int64_t>(call.bias.size()) / call.heads;
  std::int64_t const reach = columns / 2;
  std::int64_t const drawn = std::min(reach, drawn_distance);
  std::int64_t const after = causal ? 0 : drawn;
  std::vector<double> values;
  for (std::int64_t head = 0; head < call.heads; ++head) {
    auto const middle = call.bias.begin() + head * columns + reach;
    values.insert(values.end(), middle - drawn, middle + after + 1);
  }
  boost::json::object result =
      entry(kind, stack, "head", "distance = key - query", bias_note(reach, drawn, max_length, causal));
  result["first_column"] = -drawn;
  result["matrix"] = matrix_to_json(values, drawn + after + 1, around_zero(values));
  return result;
}

}  // namespace

std::vector<double> rotary_table(std::int64_t positions, std::int64_t head_dim, double base) {
  std::vector<double> values;
  for (std::int64_t position = 0; position < positions; ++position) {
    for (std::int64_t column = 0; column + 1 < head_dim; column += 2) {
      double const frequency = std::pow(base, -static_cast<double>(column) / static_cast<double>(head_dim));
      values.push_back(std::cos(static_cast<double>(position) * frequency));
    }
  }
  return values;
}

boost::json::array positions_to_json(Config const& config, ObservedPositions const& observed) {
  ModelConfig const& model = config.model;
  std::string const kind(name_of(model.positions));
  boost::json::array all;
  add_tables(all, config, observed.added);
  if (model.positions == Positions::rotary) {
    std::int64_t const head_dim = head_columns(model);
    all.push_back(
        table_entry(kind, "queries and keys",
                    rotary_table(std::min(model.max_length, max_drawn_positions), head_dim, model.rotary_base),
                    head_dim / 2, "the cosine of the angle by which each pair of columns of queries and keys turns"));
  }
  std::size_t const calls = std::min(observed.sublayers.size(), observed.calls.size());
  auto const stack_of = [&](std::size_t index) {
    std::string const& path = observed.sublayers[index].path;
    return path.substr(0, path.find('.'));
  };
  std::set<std::string> not_causal;
  for (std::size_t index = 0; index < calls; ++index) {
    if (!observed.calls[index].bias.empty() && !hides_later_keys(observed.calls[index].mask)) {
      not_causal.insert(stack_of(index));
    }
  }
  std::set<std::string> seen;
  for (std::size_t index = 0; index < calls; ++index) {
    std::string const stack = stack_of(index);
    if (!observed.calls[index].bias.empty() && seen.insert(stack).second) {
      all.push_back(bias_entry(kind, stack, observed.calls[index], model.max_length, !not_causal.contains(stack)));
    }
  }
  return all;
}

}  // namespace heddle
