#pragma once

#include <cstdint>
#include <vector>

namespace heddle {

/// Tokens that are not generated, and those that end a target. The end token is generated, whatever the others say, at
/// the longest length allowed.
struct GenerationLimits {
  /// A token that is the last of such a sequence does not follow the others of it, and a sequence of one token is never
  /// generated. What a target starts with does not count.
  std::vector<std::vector<std::int32_t>> suppressed = {};
  std::vector<std::int32_t> suppressed_first = {};  ///< not generated as the first token
  std::vector<std::int32_t> ends = {};              ///< end a target; empty: the vocabulary's end token
};

}  // namespace heddle
