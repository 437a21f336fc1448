#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// The candidate that is nearest to `word` by edit distance; "" if none is near enough to be meant.
std::string nearest_spelling(std::string_view word, std::vector<std::string> const& candidates);

/// "did you mean NEAREST?", or "expected one of: …", the candidates followed by `others`.
std::string nearest_or_all(std::string_view word, std::vector<std::string> const& candidates,
                           std::string_view others = "");

}  // namespace heddle
