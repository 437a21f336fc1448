#pragma once

#include <cstdint>
#include <vector>

namespace heddle {

/// Tokens that are not generated. The end token is, whatever they say, at the longest length allowed.
struct GenerationLimits {
  /// A token that is the last of such a sequence does not follow the others of it, and a sequence of one token is never
  /// generated. What a target starts with does not count.
  std::vector<std::vector<std::int32_t>> suppressed = {};
  std::vector<std::int32_t> suppressed_first = {};  ///< not generated as the first token
};

}  // namespace heddle
