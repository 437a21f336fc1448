#include "attention_scores.hpp"

#include <fmt/format.h>

#include <cmath>
#include <heddle/core/base/error.hpp>

namespace heddle {

std::string not_with_linear_scores(LayerOptions const& options, std::string const& what) {
  return fmt::format("{} = \"linear\" does not go together with {}", options.place("score"), what);
}

AttentionScores attention_scores(ModelConfig const& keys, LayerOptions const& options, std::int64_t head_dim) {
  std::string const score = options.text("score", "scaled_dot_product");
  AttentionScores scores{.soft_cap = options.number("soft_cap", 0)};
  if (score == "linear") {
    scores.kind = ScoreKind::linear;
    if (scores.soft_cap > 0) {
      throw ConfigError(not_with_linear_scores(options, "soft_cap; leave it out"));
    }
    if (keys.attention_dropout > 0) {
      throw ConfigError(not_with_linear_scores(
          options, fmt::format("{} = {}; 0 would do", keys.place("attention_dropout"), keys.attention_dropout)));
    }
  } else if (score == "additive") {
    scores.kind = ScoreKind::additive;
  } else if (score == "scaled_dot_product") {
    scores.scale = 1 / std::sqrt(static_cast<double>(head_dim));
  }
  return scores;
}

std::vector<LayerTrial> attention_trials() {
  auto const with_score = [](char const* score) -> std::vector<std::pair<std::string, OptionValue>> {
    return {{"score", std::string(score)}};
  };
  return {{.name = "no options"},
          {.name = "one head of keys", .options = {{"kv_heads", std::int64_t{1}}}},
          {.name = "heads of five", .options = {{"head_dim", std::int64_t{5}}}},
          {.name = "norms of queries and keys", .options = {{"query_key_norm", true}}},
          {.name = "soft cap", .options = {{"soft_cap", 0.5}}},
          {.name = "dot product", .options = with_score("dot_product")},
          {.name = "additive", .options = with_score("additive")},
          {.name = "linear",
           .set = [](ModelConfig& keys) { keys.attention_dropout = 0; },
           .options = with_score("linear")}};
}

std::vector<OptionDescription> score_options() {
  return {{.name = "score",
           .type = OptionDescription::Type::string,
           .meaning = "of a query and a key; not given: scaled_dot_product",
           .choices = {"scaled_dot_product", "dot_product", "additive", "linear"}},
          {.name = "soft_cap",
           .type = OptionDescription::Type::number,
           .meaning = "scores s become soft_cap * tanh(s / soft_cap); not given or 0: no cap"}};
}

}  // namespace heddle
