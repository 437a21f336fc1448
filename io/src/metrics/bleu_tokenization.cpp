#include <fmt/format.h>
#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <algorithm>
#include <array>
#include <boost/algorithm/string/replace.hpp>
#include <heddle/io/metrics/metric.hpp>
#include <heddle/io/text/text.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {
namespace {

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}
bool is_period_or_comma(char c) noexcept {
  return c == '.' || c == ',';
}

/// ASCII punctuation that is always a separate word: all except apostrophe, comma, hyphen and full stop (and
/// the space).
bool stands_alone(char c) noexcept {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

/// Rewrites each pair of neighbours that `matches`, left to right, without overlap: as a regular expression of two
/// character classes does. Works on bytes where no class distinguishes those of a multi-byte character, else on code
/// points.
template <typename Text, typename Matches, typename Rewrite>
Text rewrite_pairs(Text const& text, Matches matches, Rewrite rewrite) {
  Text result;
  result.reserve(text.size() * 2);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      rewrite(result, text[i], text[i + 1]);
      ++i;
    } else {
      result.push_back(text[i]);
    }
  }
  return result;
}

std::string join(std::vector<std::string_view> const& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::string strip_right(std::string_view sentence) {
  std::vector<std::string_view> const words = split_words(sentence);
  if (words.empty()) {
    return {};
  }
  return {sentence.data(), words.back().data() + words.back().size()};
}

/// The part of a rule that 13a and zh have in common (sacreBLEU's TokenizerRegexp).
std::string separate_punctuation(std::string_view text) {
  std::string spaced;
  for (char const c : text) {
    spaced += stands_alone(c) ? std::string{' ', c, ' '} : std::string{c};
  }
  // A full stop or comma stays attached to its neighbour only between two digits.
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return !is_digit(a) && is_period_or_comma(b); },
      [](std::string& out, char a, char b) {
        out.append({a, ' ', b, ' '});
      });
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return is_period_or_comma(a) && !is_digit(b); },
      [](std::string& out, char a, char b) {
        out.append({' ', a, ' ', b});
      });
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return is_digit(a) && b == '-'; },
      [](std::string& out, char a, char b) {
        out.append({a, ' ', b, ' '});
      });
  return join(split_words(spaced));
}

std::string tokenize_13a(std::string text) {
  boost::replace_all(text, "<skipped>", "");
  boost::replace_all(text, "-\n", "");
  boost::replace_all(text, "\n", " ");
  boost::replace_all(text, "&quot;", "\"");
  boost::replace_all(text, "&amp;", "&");
  boost::replace_all(text, "&lt;", "<");
  boost::replace_all(text, "&gt;", ">");
  return separate_punctuation(" " + text + " ");
}

/// sacreBLEU's Chinese characters. Its table has two blocks of more than four hexadecimal digits, which Python reads as
/// two characters: they stand for U+2001 to U+2A6D and U+2F81 to U+2FA1, and with them for much punctuation.
bool is_chinese_of_sacrebleu(char32_t letter) {
  struct Block {
    char32_t first, last;
  };
  constexpr std::array blocks{
      Block{0x3400, 0x4db5}, Block{0x4e00, 0x9fbb}, Block{0xf900, 0xfa2d}, Block{0xfa30, 0xfa6a}, Block{0xfa70, 0xfad9},
      Block{0x2001, 0x2a6d}, Block{0x2f81, 0x2fa1}, Block{0xff00, 0xffef}, Block{0x2e80, 0x2eff}, Block{0x3000, 0x303f},
      Block{0x31c0, 0x31ef}, Block{0x2f00, 0x2fdf}, Block{0x2ff0, 0x2fff}, Block{0x3100, 0x312f}, Block{0x31a0, 0x31bf},
      Block{0xfe10, 0xfe1f}, Block{0xfe30, 0xfe4f}, Block{0x3200, 0x33ff}};
  return std::ranges::any_of(blocks, [&](Block const& block) { return letter >= block.first && letter <= block.last; });
}

std::string tokenize_zh(std::string_view text) {
  if (auto const words = split_words(text); !words.empty()) {
    text.remove_prefix(static_cast<std::size_t>(words.front().data() - text.data()));
  }
  std::u32string spaced;
  for (char32_t const letter : decode_utf8(text)) {
    spaced += is_chinese_of_sacrebleu(letter) ? std::u32string{U' ', letter, U' '} : std::u32string{letter};
  }
  return separate_punctuation(encode_utf8(spaced));
}

std::string tokenize_characters(std::string_view text) {
  std::u32string spaced;
  for (char32_t const letter : decode_utf8(text)) {
    spaced += std::u32string{letter, U' '};
  }
  return join(split_words(encode_utf8(spaced)));
}

bool has_category(char32_t letter, std::uint32_t mask) {
  return (U_GET_GC_MASK(static_cast<UChar32>(letter)) & mask) != 0;
}

/// mteval-v14's international rule: punctuation and symbols of Unicode stand alone, except punctuation between digits.
std::string tokenize_international(std::string_view text) {
  std::u32string spaced = rewrite_pairs(
      decode_utf8(text),
      [](char32_t a, char32_t b) { return !has_category(a, U_GC_N_MASK) && has_category(b, U_GC_P_MASK); },
      [](std::u32string& out, char32_t a, char32_t b) {
        out.append({a, U' ', b, U' '});
      });
  spaced = rewrite_pairs(
      spaced, [](char32_t a, char32_t b) { return has_category(a, U_GC_P_MASK) && !has_category(b, U_GC_N_MASK); },
      [](std::u32string& out, char32_t a, char32_t b) {
        out.append({U' ', a, U' ', b});
      });
  std::u32string separate;
  for (char32_t const letter : spaced) {
    separate += has_category(letter, U_GC_S_MASK) ? std::u32string{U' ', letter, U' '} : std::u32string{letter};
  }
  return join(split_words(encode_utf8(separate)));
}

}  // namespace

std::string tokenize(BleuTokenization tokenization, std::string_view sentence) {
  std::string const text = strip_right(sentence);
  switch (tokenization) {
    case BleuTokenization::mteval_13a:
      return tokenize_13a(text);
    case BleuTokenization::zh:
      return tokenize_zh(text);
    case BleuTokenization::characters:
      return tokenize_characters(text);
    case BleuTokenization::international:
      return tokenize_international(text);
    case BleuTokenization::none:
      break;
  }
  return join(split_words(text));
}

bool is_written_without_spaces(std::string_view text) {
  std::int64_t letters = 0;
  std::int64_t without_spaces = 0;
  for (char32_t const letter : decode_utf8(text)) {
    UErrorCode code = U_ZERO_ERROR;
    UScriptCode const script = uscript_getScript(static_cast<UChar32>(letter), &code);
    bool const found = script == USCRIPT_HAN || script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA;
    letters += has_category(letter, U_GC_L_MASK) ? 1 : 0;
    without_spaces += found && has_category(letter, U_GC_L_MASK) ? 1 : 0;
  }
  return 2 * without_spaces > letters;
}

}  // namespace heddle
