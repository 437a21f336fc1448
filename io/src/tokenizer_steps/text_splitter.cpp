#include "tokenizer_steps/text_splitter.hpp"

#include <time.h>
#include <unicode/utf8.h>

#include <heddle/core/base/error.hpp>

namespace heddle {

namespace {

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

/// The time that this thread has computed: a process that was stopped meanwhile is not slow.
double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

TextSplitter::TextSplitter(std::string const& pattern, bool literal) {
  constexpr std::size_t max_pattern_bytes = 10'000;
  if (pattern.size() > max_pattern_bytes) {
    throw DataError("a regular expression of {} bytes; {} at most are read", pattern.size(), max_pattern_bytes);
  }
  if (!literal) {
    require_known_escapes(pattern);
  }
  UParseError place{};
  UErrorCode code = U_ZERO_ERROR;
  pattern_.reset(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(pattern), literal ? UREGEX_LITERAL : 0, place, code));
  if (U_FAILURE(code)) {
    throw DataError("the regular expression {} cannot be used: {} at its character {}", pattern.substr(0, 200),
                    u_errorName(code), place.offset);
  }
}

std::vector<TextSplitter::Part> TextSplitter::parts(std::string_view text, double deadline) const {
  constexpr std::int32_t match_time = 1000;       // in ICU's units of some milliseconds: a hostile expression ends
  constexpr std::int32_t match_bytes = 64 << 20;  // enough for a million spaces in a row
  UErrorCode code = U_ZERO_ERROR;
  auto const length = static_cast<std::int64_t>(text.size());
  icu::LocalUTextPointer const characters(utext_openUTF8(nullptr, text.data(), length, &code));
  std::unique_ptr<icu::RegexMatcher> const matcher(pattern_->matcher(code));
  auto const check = [&] {
    if (U_FAILURE(code)) {
      throw DataError("a text cannot be split into words by the vocabulary's regular expression: {}",
                      u_errorName(code));
    }
  };
  check();
  matcher->setTimeLimit(match_time, code);
  matcher->setStackLimit(match_bytes, code);
  matcher->reset(characters.getAlias());
  std::vector<Part> parts;
  std::size_t done = 0;
  auto const add = [&](std::int64_t end, bool match) {
    if (auto const last = static_cast<std::size_t>(end); last > done || match) {
      parts.push_back({text.substr(done, last - done), match});
      done = last;
    }
  };
  constexpr std::size_t matches_between_looks = 16;
  std::size_t matches = 0;
  auto const has_next = [&](std::int64_t at) {  // a call restarts the time limit
    if (matches++ % matches_between_looks == 0 && thread_seconds() > deadline) {
      throw DataError("a text cannot be split into words by the vocabulary's regular expression: it takes too long");
    }
    return matcher->find(at, code) != 0;
  };
  for (std::int64_t at = 0; at < length && has_next(at);) {
    std::int64_t const begin = matcher->start64(code);
    at = matcher->end64(code);
    bool const after_match = !parts.empty() && parts.back().match && begin == static_cast<std::int64_t>(done);
    add(begin, false);
    if (at > begin || !after_match) {  // an empty match does not follow another
      add(at, true);
    }
    if (at == begin && at < length) {
      U8_FWD_1(text.data(), at, length);
    }
  }
  check();
  add(length, false);
  return parts;
}

double TextSplitter::deadline_of(std::string_view text) {
  constexpr double bytes_per_second = 1e5;  // much less than honest expressions need
  return thread_seconds() + 0.5 + static_cast<double>(text.size()) / bytes_per_second;
}

}  // namespace heddle
