#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// The candidate that `word` was most probably meant to be, by edit distance; "" where none is near.
std::string nearest_spelling(std::string_view word, std::vector<std::string> const& candidates);

}  // namespace heddle
