#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// Joins the results of lines, which come in any order, into those of the texts that the lines are of.
class TextResults {
 public:
  struct Place {
    std::size_t text = 0;
    std::size_t line = 0;  ///< of the text
    bool single = true;    ///< the text has no other line
  };
  /// A text's result, as a JSON object.
  struct Result {
    std::size_t text = 0;
    std::string json = {};
  };

  /// The texts by their numbers of lines, each at least 1.
  explicit TextResults(std::vector<std::size_t> const& line_counts);

  /// The place of a line, which is counted over all texts.
  Place place(std::size_t line) const;
  /// Takes a line's result, {"translations": [{"text": …}, …], …}, and returns that of its text if no other line is
  /// missing. The result of a text with one line is the line's; otherwise it is {"translations": [{"text": …}],
  /// "lines": [the lines' results]}, whose one translation joins the best ones of all lines.
  std::optional<Result> add(std::size_t line, std::string json);
  /// The number of texts without a result.
  std::size_t missing() const { return missing_; }

  /// The best translation in a result, as a JSON string.
  static std::string best_text(std::string const& json);

 private:
  struct Text {
    std::size_t first = 0;  ///< line
    std::vector<std::string> lines = {};
    std::size_t missing = 0;
  };
  std::vector<Text> texts_;
  std::size_t missing_;
};

}  // namespace heddle
