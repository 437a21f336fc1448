#include "tokenizer_steps/text_splitter.hpp"

#include <fmt/format.h>
#include <time.h>
#include <unicode/unorm2.h>
#include <unicode/uregex.h>
#include <unicode/ustring.h>

#include <heddle/core/base/error.hpp>
#include <limits>
#include <map>

#include "tokenizer_steps/step_limits.hpp"

namespace heddle {
namespace {

using Regex = std::unique_ptr<URegularExpression, decltype(&uregex_close)>;

/// Steps that a match may take, in ICU's units of some milliseconds: a hostile expression ends, no honest one does.
constexpr std::int32_t regex_time = 1000;
constexpr std::size_t max_pattern_bytes = 10'000;
/// Memory of a match: enough for a million spaces in a row.
constexpr std::int32_t regex_bytes = 64 << 20;

void check(UErrorCode code, char const* what) {
  if (U_FAILURE(code)) {
    throw DataError("{}: {}", what, u_errorName(code));
  }
}

std::int32_t length_of(std::size_t size) {
  if (size > std::numeric_limits<std::int32_t>::max() / 4) {
    throw DataError("a text of {} bytes is too long to be split into words", size);
  }
  return static_cast<std::int32_t>(size);
}

std::u16string to_utf16(std::string_view text) {
  std::u16string wide(text.size(), u'\0');  // never more units than bytes
  std::int32_t used = 0;
  UErrorCode code = U_ZERO_ERROR;
  u_strFromUTF8WithSub(wide.data(), length_of(wide.size()), &used, text.data(), length_of(text.size()), 0xfffd, nullptr,
                       &code);
  check(code, "a text cannot be read");
  wide.resize(static_cast<std::size_t>(used));
  return wide;
}

std::string to_utf8(std::u16string_view wide) {
  std::string text(wide.size() * 3, '\0');  // three bytes for one unit, four for two
  std::int32_t used = 0;
  UErrorCode code = U_ZERO_ERROR;
  u_strToUTF8WithSub(text.data(), length_of(text.size()), &used, wide.data(), length_of(wide.size()), 0xfffd, nullptr,
                     &code);
  check(code, "a text cannot be written");
  text.resize(static_cast<std::size_t>(used));
  return text;
}

/// \w and \b, \h, \R, … differ between ICU and Oniguruma.
void require_known_escapes(std::string const& pattern) {
  constexpr std::string_view same = "pPsSdDrntxAz";
  for (std::size_t at = pattern.find('\\'); at != std::string::npos; at = pattern.find('\\', at + 2)) {
    char const escaped = at + 1 < pattern.size() ? pattern[at + 1] : 'z';
    bool const alphanumeric =
        (escaped >= '0' && escaped <= '9') || (escaped >= 'A' && escaped <= 'Z') || (escaped >= 'a' && escaped <= 'z');
    if (alphanumeric && same.find(escaped) == std::string_view::npos) {
      throw DataError("the regular expression {} has the escape \\{}, which is not supported", pattern.substr(0, 200),
                      at + 1 < pattern.size() ? std::string(1, escaped) : "");
    }
  }
}

Regex compile(TextSplitter::Pattern const& pattern) {
  std::u16string const wide = to_utf16(pattern.text);
  UParseError place{};
  UErrorCode code = U_ZERO_ERROR;
  if (!pattern.literal) {
    require_known_escapes(pattern.text);
  }
  Regex regex(uregex_open(wide.data(), length_of(wide.size()), pattern.literal ? UREGEX_LITERAL : 0, &place, &code),
              uregex_close);
  if (U_FAILURE(code)) {
    throw DataError("the regular expression {} cannot be used: {} at its character {}", pattern.text.substr(0, 200),
                    u_errorName(code), place.offset);
  }
  return regex;
}

UNormalizer2 const* normalizer(std::string const& form) {
  using Get = UNormalizer2 const* (*)(UErrorCode*);
  static std::map<std::string, Get> const forms{{"NFC", unorm2_getNFCInstance},
                                                {"NFD", unorm2_getNFDInstance},
                                                {"NFKC", unorm2_getNFKCInstance},
                                                {"NFKD", unorm2_getNFKDInstance}};
  if (form.empty()) {
    return nullptr;
  }
  auto const found = forms.find(form);
  if (found == forms.end()) {
    throw DataError("the normalizer {} is not supported", form);
  }
  UErrorCode code = U_ZERO_ERROR;
  UNormalizer2 const* const instance = found->second(&code);
  check(code, "a normal form is missing");
  return instance;
}

/// The time that this thread has computed: a process that was stopped meanwhile is not slow.
double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// A part of a text: a match, or what lies between two.
struct WidePart {
  std::u16string_view text;
  bool match;
};

/// Throws DataError where this thread computes after `deadline`: matches that are all short of their own limit.
std::vector<WidePart> parts_of(URegularExpression* regex, std::u16string_view text, double deadline) {
  std::vector<WidePart> parts;
  UErrorCode code = U_ZERO_ERROR;
  std::size_t done = 0;
  auto const add = [&](std::size_t end, bool match) {
    if (end > done || match) {
      parts.push_back({text.substr(done, end - done), match});
      done = end;
    }
  };
  std::int32_t const length = length_of(text.size());
  uregex_setText(regex, text.data(), length, &code);
  constexpr std::size_t matches_between_looks = 16;
  std::size_t matches = 0;
  auto const has_next = [&](std::int32_t at) {  // a call restarts the time limit
    if (matches++ % matches_between_looks == 0 && thread_seconds() > deadline) {
      throw DataError("a text cannot be split into words by the vocabulary's regular expression: it takes too long");
    }
    return uregex_find(regex, at, &code) != 0;
  };
  for (std::int32_t at = 0; at < length && has_next(at);) {
    std::int32_t const begin = uregex_start(regex, 0, &code);
    at = uregex_end(regex, 0, &code);
    bool const after_match = !parts.empty() && parts.back().match && static_cast<std::size_t>(begin) == done;
    add(static_cast<std::size_t>(begin), false);
    if (at > begin || !after_match) {  // an empty match does not follow another
      add(static_cast<std::size_t>(at), true);
    }
    if (at == begin && at < length) {
      U16_FWD_1(text.data(), at, length);
    }
  }
  check(code, "a text cannot be split into words by the vocabulary's regular expression");
  add(text.size(), false);
  return parts;
}

/// An expression for one call: a match is state.
Regex limited_clone(Regex const& pattern) {
  UErrorCode code = U_ZERO_ERROR;
  Regex regex(uregex_clone(pattern.get(), &code), uregex_close);
  check(code, "a regular expression cannot be used");
  uregex_setTimeLimit(regex.get(), regex_time, &code);
  uregex_setStackLimit(regex.get(), regex_bytes, &code);
  check(code, "a regular expression has no limits");
  return regex;
}

}  // namespace

struct TextSplitter::State {
  std::vector<Regex> patterns;
  UNormalizer2 const* normal_form = nullptr;
};

TextSplitter::TextSplitter(std::vector<Pattern> const& patterns, std::string const& normal_form) {
  auto state = std::make_unique<State>();
  require_patterns(patterns.size());
  for (Pattern const& pattern : patterns) {
    if (pattern.text.size() > max_pattern_bytes) {
      throw DataError("a regular expression of {} bytes; {} at most are read", pattern.text.size(), max_pattern_bytes);
    }
    state->patterns.push_back(compile(pattern));
  }
  state->normal_form = normalizer(normal_form);
  state_ = std::move(state);
}

TextSplitter::~TextSplitter() = default;

std::string TextSplitter::normalize(std::string_view text) const {
  std::u16string wide = to_utf16(text);
  if (state_->normal_form != nullptr) {
    UErrorCode code = U_ZERO_ERROR;
    auto const normalize = [&](std::u16string& into) {
      return unorm2_normalize(state_->normal_form, wide.data(), length_of(wide.size()), into.data(),
                              length_of(into.size()), &code);
    };
    std::u16string normal(wide.size() + 16, u'\0');
    std::int32_t used = normalize(normal);
    if (code == U_BUFFER_OVERFLOW_ERROR) {
      code = U_ZERO_ERROR;
      normal.resize(static_cast<std::size_t>(used));
      used = normalize(normal);
    }
    check(code, "a text has no normal form");
    normal.resize(static_cast<std::size_t>(used));
    wide = std::move(normal);
  }
  return to_utf8(wide);
}

void TextSplitter::split(std::string_view text, std::function<void(std::string_view)> const& take) const {
  std::u16string const wide = to_utf16(text);
  std::vector<std::u16string_view> words(wide.empty() ? 0 : 1, wide);
  double const deadline = deadline_of(text);
  for (Regex const& pattern : state_->patterns) {
    Regex const regex = limited_clone(pattern);
    std::vector<std::u16string_view> finer;
    for (std::u16string_view const word : words) {
      for (WidePart const& part : parts_of(regex.get(), word, deadline)) {
        if (!part.text.empty()) {
          finer.push_back(part.text);
        }
      }
    }
    words = std::move(finer);
  }
  for (std::u16string_view const word : words) {
    take(to_utf8(word));
  }
}

double TextSplitter::deadline_of(std::string_view text) {
  constexpr double bytes_per_second = 1e5;  // much less than honest expressions need
  return thread_seconds() + 0.5 + static_cast<double>(text.size()) / bytes_per_second;
}

std::vector<TextSplitter::Part> TextSplitter::parts(std::string_view text, double deadline) const {
  std::u16string const wide = to_utf16(text);
  std::vector<Part> parts;
  for (WidePart const& part : parts_of(limited_clone(state_->patterns.at(0)).get(), wide, deadline)) {
    parts.push_back({to_utf8(part.text), part.match});
  }
  return parts;
}

}  // namespace heddle
