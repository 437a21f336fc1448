#include "tokenizer_steps/characters.hpp"

#include <unicode/uchar.h>

#include <array>
#include <heddle/io/text/text.hpp>
#include <unordered_map>

namespace heddle {
namespace {

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80;
}

struct ByteAlphabet {
  std::array<std::string, 256> text;                    // of each byte
  std::unordered_map<char32_t, unsigned char> numbers;  // of each character
};

/// Printable bytes of Latin-1 are themselves; the others are the characters from U+0100 on, in their order.
ByteAlphabet make_alphabet() {
  ByteAlphabet alphabet;
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    bool const printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    char32_t const character = printable ? byte : next++;
    append_utf8(alphabet.text.at(byte), character);
    alphabet.numbers[character] = static_cast<unsigned char>(byte);
  }
  return alphabet;
}

ByteAlphabet const& alphabet() {
  static ByteAlphabet const made = make_alphabet();
  return made;
}

}  // namespace

bool is_white_space(char32_t letter) {
  return u_isUWhiteSpace(static_cast<UChar32>(letter)) != 0;
}

int category_of(char32_t letter) {
  // ICU's tables say since when a character exists, and later versions changed only these categories.
  switch (letter) {
    case U'\u166d':
    case U'\U000111c9':
      return U_OTHER_PUNCTUATION;
    case U'\u1734':
      return U_NON_SPACING_MARK;
    case U'\u1885':
    case U'\u1886':
      return U_OTHER_LETTER;
    case U'\ua9bd':
      return U_COMBINING_SPACING_MARK;
    default:
      break;
  }
  constexpr std::uint8_t newest = 8;
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(letter), age);
  return age[0] > newest ? int{U_UNASSIGNED} : u_charType(static_cast<UChar32>(letter));
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
  text += encode_utf8({&letter, 1});
}

std::string in_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (char const byte : bytes) {
    text += alphabet().text.at(static_cast<unsigned char>(byte));
  }
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  for (char32_t const character : decode_utf8(text)) {
    auto const found = alphabet().numbers.find(character);
    if (found == alphabet().numbers.end()) {
      return std::nullopt;
    }
    bytes += static_cast<char>(found->second);
  }
  return bytes;
}

}  // namespace heddle
