#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/attention/attention_core.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <map>
#include <utility>

#include "inspection/page/page.hpp"
#include "observed_model.hpp"

namespace heddle {
namespace {

constexpr std::int64_t max_drawn_positions = 128;
constexpr std::int64_t drawn_distance = 64;

/// A matrix with its names; colours are symmetric about 0, so that 0 has the neutral one.
boost::json::object entry(std::string_view kind, std::string const& name, std::vector<double> const& values,
                          std::int64_t columns, std::string const& note) {
  double reach = 0;
  for (double const value : values) {
    reach = std::max(reach, std::abs(value));
  }
  reach = reach > 0 ? reach : 1;
  return {{"kind", kind},
          {"name", name},
          {"row_name", "position"},
          {"column_name", "column"},
          {"first_column", 0},
          {"note", note},
          {"matrix", matrix_to_json(values, columns, {-reach, reach})}};
}

/// Positions that are added to embeddings. Fixed ones are the same in all stacks.
void add_tables(boost::json::array& all, Config const& config, std::vector<Tensor> const& added) {
  bool const fixed = config.model.positions == Positions::sinusoidal;
  for (std::size_t index = 0; index < std::min(added.size(), config.model.stacks.size()); ++index) {
    if (added[index].empty() || (fixed && index > 0)) {
      continue;
    }
    std::int64_t const rows = std::min(added[index].dim(0), max_drawn_positions);
    all.push_back(entry(name_of(config.model.positions), fixed ? "all stacks" : config.model.stacks[index],
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

/// The note about a bias of distances up to `reach`, which is drawn up to `drawn`.
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
      entry(kind, stack, values, drawn + after + 1, bias_note(reach, drawn, max_length, causal));
  result["row_name"] = "head";
  result["column_name"] = "distance = key - query";
  result["first_column"] = -drawn;
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

boost::json::array positions_to_json(Config const& config, ObservedModel const& observed) {
  ModelConfig const& model = config.model;
  std::string const kind(name_of(model.positions));
  boost::json::array all;
  add_tables(all, config, observed.added);
  if (model.positions == Positions::rotary) {
    std::int64_t const head_dim = head_columns(model);
    all.push_back(entry(kind, "queries and keys",
                        rotary_table(std::min(model.max_length, max_drawn_positions), head_dim, model.rotary_base),
                        head_dim / 2,
                        "the cosine of the angle by which each pair of columns of queries and keys turns"));
    all.back().as_object()["column_name"] = "pair";
  }
  auto const stack_of = [&](std::size_t index) {
    std::string const& path = observed.sublayers[index].path;
    return path.substr(0, path.find('.'));
  };
  std::map<std::string, std::pair<std::size_t, bool>> stacks;  // the first call with a bias; whether all are causal
  for (std::size_t index = 0; index < observed.calls.size(); ++index) {
    ObservedAttention const& call = observed.calls[index];
    if (!call.bias.empty()) {
      auto& [first, causal] = stacks.try_emplace(stack_of(index), index, true).first->second;
      causal = causal && (call.mask.is(MaskKind::causal) || call.mask.hides_later);
    }
  }
  for (auto const& [stack, found] : stacks) {
    all.push_back(bias_entry(kind, stack, observed.calls[found.first], model.max_length, found.second));
  }
  return all;
}

}  // namespace heddle
