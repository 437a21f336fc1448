#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// The candidate that `word` means: the same except for upper case, another name of it ("bf16" of bfloat16), the only
/// one that `word` begins, or the nearest by edit distance; "" if none is near enough.
std::string nearest_spelling(std::string_view word, std::vector<std::string> const& candidates);

/// "did you mean NEAREST?", or "expected one of: A, B, or OTHERS", where `others` describes what else is accepted;
/// there are candidates or others.
std::string nearest_or_all(std::string_view word, std::vector<std::string> const& candidates,
                           std::string_view others = "");

}  // namespace heddle
