#pragma once

#include <unicode/regex.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A regular expression (ICU's) by which texts are split. One object may be used by several threads.
class TextSplitter {
 public:
  /// A `literal` pattern is not an expression but the text itself. Throws DataError for an expression that cannot be
  /// used, or one with an escape that means something else in the Oniguruma library, for which these expressions are
  /// written.
  explicit TextSplitter(std::string const& pattern, bool literal = false);

  /// A match, which may be empty, or the text between two matches.
  struct Part {
    std::string_view text;
    bool match;
  };
  /// The parts of a text in UTF-8, in order. Throws DataError where the expression takes too much time or memory with
  /// this text, or this thread computes after `deadline`: matches that are all short of their own limit.
  std::vector<Part> parts(std::string_view text, double deadline) const;
  /// The time of this thread until which a text of this length may be matched.
  static double deadline_of(std::string_view text);

 private:
  std::shared_ptr<icu::RegexPattern const> pattern_;
};

}  // namespace heddle
