#pragma once

#include <heddle/core/generation/generation.hpp>
#include <span>

#include "row_rankings.hpp"

namespace heddle {

/// Throws UsageError for impossible values; the message says what would be right.
void require_valid(Sampling const& sampling);

/// The place of a random number: a source's number and the tokens drawn before.
struct DrawPlace {
  std::int64_t source = 0;
  std::int64_t position = 0;
};

/// Draws one of a row's best tokens, which are in the order of their probabilities.
RankedToken draw_token(Sampling const& sampling, std::span<RankedToken const> best, DrawPlace const& place);

}  // namespace heddle
