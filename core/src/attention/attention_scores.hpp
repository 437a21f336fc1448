#pragma once

#include <heddle/core/config/model_config.hpp>
#include <heddle/core/layers/traits.hpp>
#include <heddle/core/operations/attention.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The scores that the options `score` and `soft_cap` of an attention layer ask for.
struct AttentionScores {
  ScoreKind kind = ScoreKind::dot_product;
  double scale = 1;
  double soft_cap = 0;
};

/// Throws ConfigError where options or keys do not go together.
AttentionScores attention_scores(ModelConfig const& keys, LayerOptions const& options, std::int64_t head_dim);

/// The declarations of both options.
std::vector<OptionDescription> score_options();

/// The configurations in which both attention layers are checked.
std::vector<LayerTrial> attention_trials();

/// "PLACE = "linear" does not go together with WHAT": the beginning of a message.
std::string not_with_linear_scores(LayerOptions const& options, std::string const& what);

}  // namespace heddle
