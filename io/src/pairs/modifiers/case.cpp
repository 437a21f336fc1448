#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <heddle/io/text/text.hpp>

#include "pairs/modifiers/kinds.hpp"

namespace heddle {

namespace {

void each_side(TextPair& pair, std::function<std::string(std::string const&)> const& change) {
  pair.source = change(pair.source);
  pair.target = change(pair.target);
}

/// The first letter of each word in upper case, and one space between words.
std::string title_case(std::string const& text) {
  std::string titled;
  for (std::string_view const word : split_words(text)) {
    std::size_t first = 1;
    while (first < word.size() && (static_cast<unsigned char>(word[first]) & 0xC0U) == 0x80) {
      ++first;
    }
    titled += titled.empty() ? "" : " ";
    titled += upper_case(word.substr(0, first));
    titled += word.substr(first);
  }
  return titled;
}

/// The text without the punctuation at its end.
std::string_view without_end(std::string const& text) {
  std::u32string const points = decode_utf8(text);
  std::size_t end = points.size();
  while (end > 0 &&
         (u_ispunct(static_cast<UChar32>(points[end - 1])) || u_isspace(static_cast<UChar32>(points[end - 1])))) {
    --end;
  }
  return std::string_view(text).substr(0, encode_utf8(std::u32string_view(points).substr(0, end)).size());
}

/// Removes the punctuation from both sides where both end with some and something else is left.
void remove_end_punctuation(TextPair& pair) {
  std::string const source(without_end(pair.source));
  std::string const target(without_end(pair.target));
  if (source.empty() || target.empty() || source == pair.source || target == pair.target) {
    return;
  }
  auto const sources = static_cast<std::int32_t>(count_words(source));
  auto const targets = static_cast<std::int32_t>(count_words(target));
  std::erase_if(pair.links, [&](TokenLink const& link) { return link.source >= sources || link.target >= targets; });
  if (pair.weights.size() > 1) {
    pair.weights.erase(pair.weights.begin() + targets, pair.weights.end() - 1);
  }
  pair.source = source;
  pair.target = target;
}

}  // namespace

std::string upper_case(std::string_view text) {
  std::string result;
  if (std::ranges::all_of(text, [](char byte) { return static_cast<unsigned char>(byte) < 0x80; })) {
    result = text;
    std::ranges::transform(result, result.begin(),
                           [](char byte) { return byte >= 'a' && byte <= 'z' ? static_cast<char>(byte - 32) : byte; });
    return result;
  }
  icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())))
      .toUpper(icu::Locale::getRoot())
      .toUTF8String(result);
  return result;
}

std::vector<std::string> words_in(std::string_view text) {
  auto const words = split_words(text);
  return {words.begin(), words.end()};
}

std::string join_words(std::vector<std::string> const& words) {
  std::string text;
  for (std::string const& word : words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

ModifierKind upper_case_modifier() {
  return {
      .name = "upper_case", .meaning = "both sides in upper case", .of_pair = [](LayerOptions const&) -> PairChange {
        return [](TextPair& pair, Draws&) { each_side(pair, &upper_case); };
      }};
}

ModifierKind title_case_modifier() {
  return {.name = "title_case",
          .meaning = "both sides with the first letter of each word in upper case",
          .of_pair = [](LayerOptions const&) -> PairChange {
            return [](TextPair& pair, Draws&) { each_side(pair, &title_case); };
          }};
}

ModifierKind end_punctuation_modifier() {
  return {.name = "remove_end_punctuation",
          .meaning = "without the punctuation at the end, where both sides have some",
          .of_pair = [](LayerOptions const&) -> PairChange {
            return [](TextPair& pair, Draws&) { remove_end_punctuation(pair); };
          }};
}

}  // namespace heddle
