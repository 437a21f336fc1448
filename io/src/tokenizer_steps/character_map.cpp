#include "tokenizer_steps/character_map.hpp"

#include <fmt/format.h>
#include <unicode/ubrk.h>
#include <unicode/utext.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <memory>
#include <utility>

#include "tokenizer_steps/characters.hpp"
#include "tokenizer_steps/json_members.hpp"

namespace heddle {
namespace {

constexpr std::uint32_t value_bits = (1U << 31U) - 1;

std::uint32_t word_at(std::string_view bytes, std::size_t index) {
  std::uint32_t word = 0;
  for (unsigned byte = 0; byte < 4; ++byte) {
    word |= std::uint32_t{static_cast<unsigned char>(bytes[index * 4 + byte])} << (8 * byte);
  }
  return word;
}

/// The place of a unit's children, to which a byte is added by "exclusive or".
std::size_t children_of(std::size_t index, std::uint32_t unit) {
  return index ^ (std::size_t{unit >> 10U} << ((unit & (1U << 9U)) >> 6U));
}

bool has_value(std::uint32_t unit) {
  return (unit >> 8U & 1U) != 0;
}

/// The units of a map and its replacements. Throws DataError where the map ends before its units.
std::pair<std::string_view, std::string_view> parts_of_map(std::string_view map) {
  constexpr std::size_t head = 4;  // bytes, the length of the units
  std::size_t const bytes = map.size() < head ? 0 : word_at(map, 0);
  if (map.size() < head || bytes > map.size() - head) {
    throw DataError("a character map of {} bytes ends before its units do", map.size());
  }
  map.remove_prefix(head);
  return {map.substr(0, bytes), map.substr(bytes)};
}

using Breaks = std::unique_ptr<UBreakIterator, decltype(&ubrk_close)>;

/// The boundaries of a text's grapheme clusters (Unicode's annex 29), as places of its bytes.
class GraphemeBreaks {
 public:
  explicit GraphemeBreaks(std::string_view text) : breaks_(nullptr, ubrk_close) {
    static UErrorCode made = U_ZERO_ERROR;
    static Breaks const prototype(ubrk_open(UBRK_CHARACTER, "", nullptr, 0, &made), ubrk_close);
    UErrorCode code = made;
    breaks_.reset(U_SUCCESS(code) ? ubrk_clone(prototype.get(), &code) : nullptr);
    utext_openUTF8(&text_, text.data(), static_cast<std::int64_t>(text.size()), &code);
    ubrk_setUText(breaks_.get(), &text_, &code);
    if (U_FAILURE(code)) {
      throw DataError("a text cannot be split into characters: {}", u_errorName(code));
    }
  }
  ~GraphemeBreaks() { utext_close(&text_); }
  GraphemeBreaks(GraphemeBreaks const&) = delete;
  GraphemeBreaks& operator=(GraphemeBreaks const&) = delete;

  std::size_t after(std::size_t place) {
    return static_cast<std::size_t>(ubrk_following(breaks_.get(), static_cast<std::int32_t>(place)));
  }

 private:
  UText text_ = UTEXT_INITIALIZER;
  Breaks breaks_;
};

}  // namespace

void CharacterMap::require_sound(std::string_view map) {
  if (map.empty()) {
    return;
  }
  auto const [trie, texts] = parts_of_map(map);
  for (std::size_t begin = 0; begin < texts.size();) {
    std::size_t const end = std::min(texts.find('\0', begin), texts.size());
    if (end - begin > max_replacement_bytes) {
      throw DataError("a character map has {} bytes in place of a character; {} at most are read", end - begin,
                      max_replacement_bytes);
    }
    begin = end + 1;
  }
  std::size_t const units = trie.size() / 4;
  for (std::size_t index = 0; index < units; ++index) {
    std::uint32_t const unit = word_at(trie, index);
    if (index > 0 && unit >> 31U != 0) {
      continue;  // the place of a text: no character leads to it
    }
    std::size_t const next = children_of(index, unit);
    bool const good = (next | 0xffU) < units;  // a character is added to it
    if (!good || (has_value(unit) && (word_at(trie, next) & value_bits) >= texts.size())) {
      throw DataError("a character map points outside itself at unit {}", index);
    }
  }
}

CharacterMap::CharacterMap(std::string_view map) {
  require_sound(map);
  auto const [trie, texts] = parts_of_map(map);
  for (std::size_t index = 0; index < trie.size() / 4; ++index) {
    units_.push_back(word_at(trie, index));
  }
  texts_ = texts;
  if (units_.empty() || find_invalid_utf8(texts_) != std::string::npos) {
    throw DataError("a character map is empty, or its replacements are not UTF-8");
  }
}

bool CharacterMap::replace(std::string_view text, std::string& into) const {
  std::size_t place = children_of(0, units_[0]);
  for (char const character : text) {
    auto const byte = static_cast<unsigned char>(character);
    place ^= byte;
    std::uint32_t const unit = units_[place];
    if (byte == 0 || (unit & (1U << 31U | 0xffU)) != byte) {
      return false;
    }
    place = children_of(place, unit);
    if (has_value(unit)) {
      std::size_t const begin = std::min<std::size_t>(units_[place] & value_bits, texts_.size());
      into += std::string_view(texts_).substr(begin, texts_.find('\0', begin) - begin);
      return true;
    }
  }
  return false;
}

std::string CharacterMap::normalize(std::string_view text) const {
  constexpr std::size_t longest_cluster = 5;
  std::string normal;
  auto const by_characters = [&](std::string_view part) {
    while (!part.empty()) {
      std::string_view const one = first_character(part);
      if (!replace(one, normal)) {
        normal += one;
      }
      part.remove_prefix(one.size());
    }
  };
  bool const ascii = std::ranges::none_of(text, [](char byte) { return (byte & 0x80) != 0; });
  if (ascii && text.find('\r') == text.npos) {  // each byte is a cluster
    by_characters(text);
    return normal;
  }
  GraphemeBreaks breaks(text);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const end = breaks.after(at);
    std::string_view const cluster = text.substr(at, end - at);
    if (cluster.size() > longest_cluster || !replace(cluster, normal)) {
      by_characters(cluster);
    }
    at = end;
  }
  return normal;
}

}  // namespace heddle
