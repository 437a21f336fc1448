#include "tokenizers/byte_pairs.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>

namespace heddle {
namespace {

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
    std::string& text = alphabet.text.at(byte);
    if (character >= 0x80) {
      text += static_cast<char>(0xc0U | (character >> 6U));
      text += static_cast<char>(0x80U | (character & 0x3fU));
    } else {
      text += static_cast<char>(character);
    }
    alphabet.numbers[character] = static_cast<unsigned char>(byte);
  }
  return alphabet;
}

ByteAlphabet const& alphabet() {
  static ByteAlphabet const made = make_alphabet();
  return made;
}

}  // namespace

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

BytePairs::BytePairs(std::unordered_map<std::string, std::int32_t> ids) : ids_(std::move(ids)) {
  for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
    bytes_.at(byte) = require(std::string(1, static_cast<char>(byte)));
  }
}

std::optional<std::int32_t> BytePairs::find(std::string const& bytes) const {
  auto const found = ids_.find(bytes);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::int32_t BytePairs::require(std::string const& bytes) const {
  auto const id = find(bytes);
  if (!id) {
    throw DataError("the vocabulary has no piece \"{}\"", in_byte_alphabet(bytes));
  }
  return *id;
}

void BytePairs::add_merge(std::string const& left, std::string const& right) {
  merges_.add(require(left), require(right), require(left + right));
}

void BytePairs::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::vector<std::int32_t> symbols;
  symbols.reserve(word.size());
  for (char const byte : word) {
    symbols.push_back(bytes_.at(static_cast<unsigned char>(byte)));
  }
  merges_.apply(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

}  // namespace heddle
