#pragma once

#include <array>
#include <cstdint>
#include <heddle/io/text/text.hpp>
#include <string>
#include <vector>

#include "line_window.hpp"

namespace heddle {

/// Lines of two texts that belong together: sources or hypotheses, and their references.
struct LinePairWindow {
  std::vector<SourceLine> lines;
  std::vector<std::string> references;

  bool empty() const { return lines.empty(); }
};

/// Two texts, read side by side in windows.
class LinePairs {
 public:
  /// Throws DataError where a text cannot be opened.
  LinePairs(std::string const& text, std::string const& reference, InvalidUtf8 invalid_utf8);

  /// The next pairs, at most `count` and about max_window_bytes; none at the end. Throws DataError where one text ends
  /// before the other, with the lines of both, where both are empty, and as LineReader::next does.
  LinePairWindow next(std::int64_t count);

  /// Warns of lines that were not UTF-8, once for each text that has them.
  void warn_of_invalid() const;

 private:
  std::array<std::string, 2> paths_;
  std::array<LineReader, 2> readers_;
};

/// Throws DataError as LinePairs does, before anything is computed; texts that cannot be read twice are not looked at.
void require_equal_lines(std::string const& text, std::string const& reference, InvalidUtf8 invalid_utf8);

}  // namespace heddle
