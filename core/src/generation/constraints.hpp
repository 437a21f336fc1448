#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <heddle/core/generation/generation.hpp>
#include <map>
#include <span>
#include <vector>

#include "token_choice.hpp"

namespace heddle {

/// The tokens that end a target: those of the limits, or the vocabulary's end token.
std::vector<std::int32_t> end_tokens(GenerationModel const& model);

/// The rules that leave tokens out of a step: GenerationLimits, and the options forbidden, allow_unknown, min_length
/// and no_repeat_ngram of GenerationOptions.
class Constraints {
 public:
  using Tokens = std::vector<std::int32_t>;

  /// Throws UsageError for a token outside of the vocabulary, an empty sequence, and where no token would be left.
  Constraints(GenerationModel const& model, GenerationOptions const& options);

  /// The tokens, each once and ascending, that must not follow a hypothesis's `tokens` after its `start`.
  Tokens left_out(std::span<std::int32_t const> start, std::span<std::int32_t const> tokens) const;

 private:
  void add_repeating(std::span<std::int32_t const> start, std::span<std::int32_t const> tokens, Tokens& out) const;

  bool ends(std::int32_t token) const { return std::ranges::find(ends_, token) != ends_.end(); }

  Tokens ends_;
  std::size_t min_length_;
  std::size_t ngram_;
  Tokens always_, first_;
  std::map<std::int32_t, std::vector<Tokens>> sequences_;  ///< suppressed, by their last token but one
};

/// Leaves tokens, which ascend, out of a row's ranking; of the others the `wanted` best stay, or the end token where
/// there are none.
void leave_out(std::span<std::int32_t const> left_out, std::size_t wanted, std::int32_t end, RowRanking& ranking);

}  // namespace heddle
