#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heddle {

/// Unicode's property White_Space.
bool is_white_space(char32_t letter);
/// The general category of Unicode 8, which Hugging Face's tokenizers has for BERT's steps; 0 (not assigned) for newer
/// characters.
int category_of(char32_t letter);
/// A letter in lower case, whatever is around it: Σ becomes σ also at the end of a word.
std::u32string lowercase(char32_t letter);
/// The first and the last character of a text in UTF-8; none of an empty one.
std::string_view first_character(std::string_view text);
std::string_view last_character(std::string_view text);
void append_utf8(std::string& text, char32_t letter);
/// GPT-2's alphabet, a printable character for each byte: the text of its pieces for bytes.
std::string in_byte_alphabet(std::string_view bytes);
/// The way back; nothing if a character is not of the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace heddle
