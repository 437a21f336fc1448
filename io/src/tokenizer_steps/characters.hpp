#pragma once

#include <string>
#include <string_view>

namespace heddle {

/// Unicode's property White_Space.
bool is_white_space(char32_t letter);

/// A letter in lower case, whatever is around it: Σ becomes σ also at the end of a word.
std::u32string lowercase(char32_t letter);

/// The first and the last character of a text in UTF-8; none of an empty one.
std::string_view first_character(std::string_view text);
std::string_view last_character(std::string_view text);
void append_utf8(std::string& text, char32_t letter);

}  // namespace heddle
