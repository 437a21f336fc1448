#include "tokenizer_steps/characters.hpp"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <array>

namespace heddle {
namespace {

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80;
}

}  // namespace

bool is_white_space(char32_t letter) {
  return u_isUWhiteSpace(static_cast<UChar32>(letter)) != 0;
}

std::u32string lowercase(char32_t letter) {
  constexpr char32_t dotted_capital_i = U'\u0130';
  return letter == dotted_capital_i ? U"i\u0307"
                                    : std::u32string(1, static_cast<char32_t>(u_tolower(static_cast<UChar32>(letter))));
}

std::string_view first_character(std::string_view text) {
  std::size_t length = text.empty() ? 0 : 1;
  while (length < text.size() && continues(text[length])) {
    ++length;
  }
  return text.substr(0, length);
}

std::string_view last_character(std::string_view text) {
  std::size_t begin = text.size() - (text.empty() ? 0 : 1);
  while (begin > 0 && continues(text[begin])) {
    --begin;
  }
  return text.substr(begin);
}

void append_utf8(std::string& text, char32_t letter) {
  std::array<char, U8_MAX_LENGTH> bytes;
  std::int32_t used = 0;
  U8_APPEND_UNSAFE(bytes.data(), used, static_cast<UChar32>(letter));
  text.append(bytes.data(), static_cast<std::size_t>(used));
}

}  // namespace heddle
