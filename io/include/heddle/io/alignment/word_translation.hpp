#pragma once

#include <cstdint>

namespace heddle {

/// A word or piece of a target vocabulary with its probability.
struct WordTranslation {
  std::int32_t target = 0;
  double probability = 0;
};

}  // namespace heddle
