#include "cleaning/rule.hpp"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <heddle/core/base/digest.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <span>
#include <utility>

namespace heddle {
namespace {

class LoneRule : public Rule {
 public:
  explicit LoneRule(std::function<Reason(LineText const&)> judge) : judge_(std::move(judge)) {}
  Reason judge(LineText const& line) const override { return judge_(line); }

 private:
  std::function<Reason(LineText const&)> judge_;
};

/// Appends a word's character, after a space if another word ended before.
class WordJoiner {
 public:
  explicit WordJoiner(std::size_t size) { text_.reserve(size); }
  void add(std::string_view character) {
    if (ended_ && !text_.empty()) {
      text_ += ' ';
    }
    ended_ = false;
    text_ += character;
  }
  void end_word() { ended_ = true; }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  bool ended_ = false;
};

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char letter) { return static_cast<unsigned char>(letter) < 0x80; });
}

std::string case_folded(std::string_view text) {
  UErrorCode failure = U_ZERO_ERROR;
  icu::Normalizer2 const* const normalizer = icu::Normalizer2::getNFKCCasefoldInstance(failure);
  std::string result;
  icu::StringByteSink<std::string> sink(&result);
  if (U_SUCCESS(failure)) {
    normalizer->normalizeUTF8(0, {text.data(), static_cast<std::int32_t>(text.size())}, sink, nullptr, failure);
  }
  if (U_FAILURE(failure)) {
    throw Error("ICU cannot fold the case of a text: {}", u_errorName(failure));
  }
  return result;
}

std::string words_of_ascii(std::string_view text) {
  WordJoiner words(text.size());
  for (char letter : text) {
    bool const upper = letter >= 'A' && letter <= 'Z';
    letter = static_cast<char>(upper ? letter + ('a' - 'A') : letter);
    if ((letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9')) {
      words.add({&letter, 1});
    } else {
      words.end_word();
    }
  }
  return words.take();
}

std::string words_of(std::string const& folded) {
  WordJoiner words(folded.size());
  for (char32_t const point : decode_utf8(folded)) {
    constexpr std::uint32_t in_words = U_GC_L_MASK | U_GC_M_MASK | U_GC_N_MASK;
    if ((U_GET_GC_MASK(static_cast<UChar32>(point)) & in_words) != 0) {
      words.add(encode_utf8({&point, 1}));
    } else {
      words.end_word();
    }
  }
  return words.take();
}

}  // namespace

SideText::SideText(std::string_view line) : text(line), points(decode_utf8(line)), words(split_words(line)) {}

std::string const& SideText::folded() const {
  if (folded_.empty() && !text.empty()) {
    folded_ = is_ascii(text) ? words_of_ascii(text) : words_of(case_folded(text));
    if (folded_.empty()) {
      folded_ = text;
    }
  }
  return folded_;
}

OptionValue RuleOptions::value(std::string const& name) const {
  auto const option =
      std::ranges::find(known_, name, [](CleaningOption const& known) { return known.description.name; });
  auto const given = table_.options.given().find(name);
  return given == table_.options.given().end() ? option->otherwise
                                               : *option->description.converted(given->second.value);
}

std::unique_ptr<Rule> make_rule(std::function<Rule::Reason(LineText const&)> judge) {
  return std::make_unique<LoneRule>(std::move(judge));
}

std::unique_ptr<Rule> make_side_rule(std::function<Rule::Reason(SideText const&)> judge) {
  return make_rule([judge = std::move(judge)](LineText const& line) -> Rule::Reason {
    for (std::size_t side = 0; side < line.sides.size(); ++side) {
      if (auto const reason = judge(line.sides[side])) {
        return line.name(side) + ' ' + *reason;
      }
    }
    return {};
  });
}

std::uint64_t text_hash(std::string_view text) {
  return digest(std::as_bytes(std::span(text)));
}

}  // namespace heddle
