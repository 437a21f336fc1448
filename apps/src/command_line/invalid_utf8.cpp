#include "invalid_utf8.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>

#include "report/warning.hpp"

namespace heddle {

namespace po = boost::program_options;

void add_invalid_utf8(po::options_description& description, InvalidUtf8& value, bool with_skip) {
  auto const choose = [&value, with_skip](std::string const& word) {
    if (word == "fail") {
      value = InvalidUtf8::fail;
    } else if (word == "replace") {
      value = InvalidUtf8::replace;
    } else if (with_skip && word == "skip") {
      value = InvalidUtf8::skip;
    } else {
      throw UsageError(fmt::format("--invalid-utf8 is \"{}\"; expected {}", word,
                                   with_skip ? "fail, skip or replace" : "replace or fail"));
    }
  };
  auto* const option = po::value<std::string>()
                           ->value_name(with_skip ? "fail|skip|replace" : "replace|fail")
                           ->default_value(value == InvalidUtf8::fail ? "fail" : "replace")
                           ->notifier(choose);
  description.add_options()("invalid-utf8", option,
                            with_skip
                                ? "of a line that is not UTF-8: end with an error that names it, leave it out with "
                                  "its other side, or put U+FFFD in place of what is invalid"
                                : "of a line that is not UTF-8: put U+FFFD in place of what is invalid, or end "
                                  "with an error that names it");
}

void warn_of_invalid_lines(std::string const& text, LineReader const& reader) {
  auto const [count, first] = reader.invalid_lines();
  if (count > 0) {
    warn(
        fmt::format("{}: {} of {} lines are not valid UTF-8, the first is line {}; U+FFFD took the place of what is "
                    "invalid",
                    text, readable_count(count), readable_count(reader.line_number()), first));
  }
}

}  // namespace heddle
