#pragma once

#include <heddle/core/layers/traits.hpp>
#include <heddle/core/operations/attention.hpp>

namespace heddle {

/// The scores that the options `score` and `soft_cap` of an attention layer ask for.
struct AttentionScores {
  ScoreKind kind = ScoreKind::dot_product;
  double scale = 1;
  double soft_cap = 0;
  std::string function = {};  ///< the name of a plug-in's score, which may not exist; empty for others
};

/// Throws ConfigError where options or keys do not go together.
AttentionScores attention_scores(ModelConfig const& keys, LayerOptions const& options, std::int64_t head_dim);

/// The mask of self-attention, causal on the target side unless the option `mask` says otherwise. Throws ConfigError
/// where options do not go together.
AttentionMask self_attention_mask(LayerOptions const& options, Side side);

LayerTraits cross_attention_traits();
LayerTraits self_attention_traits();

}  // namespace heddle
