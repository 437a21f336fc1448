#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Brings texts into a normal form of Unicode and splits them into words by regular expressions (ICU's). One object may
/// be used by several threads.
class TextSplitter {
 public:
  /// An expression whose matches are words of their own, and so is what lies between two matches.
  struct Pattern {
    std::string text;
    bool literal = false;  ///< not an expression but the text itself
  };

  /// Each pattern splits the words of the one before it. `normal_form`: "NFC", "NFD", "NFKC", "NFKD" or "" (texts stay
  /// as they are). Throws DataError for another form, an expression that cannot be used, or one with an escape that
  /// means something else in the Oniguruma library, for which these expressions are written.
  TextSplitter(std::vector<Pattern> const& patterns, std::string const& normal_form);
  ~TextSplitter();

  /// Bytes that are not UTF-8 become U+FFFD, here and in `split`.
  std::string normalize(std::string_view text) const;

  /// Calls `take` for each word, in order: together they are the text. Throws DataError where an expression takes too
  /// much time or memory with this text.
  void split(std::string_view text, std::function<void(std::string_view)> const& take) const;

  /// A match, which may be empty, or the text between two matches.
  struct Part {
    std::string text;
    bool match;
  };
  /// The time of this thread until which a text of this length may be matched.
  static double deadline_of(std::string_view text);
  /// The parts of a text by the first pattern, in order. Throws DataError as `split` does, after `deadline`.
  std::vector<Part> parts(std::string_view text, double deadline) const;

 private:
  struct State;
  std::unique_ptr<State const> state_;
};

}  // namespace heddle
