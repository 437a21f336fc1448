#include "line_pairs.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <system_error>

#include "command_line/invalid_utf8.hpp"

namespace heddle {

LinePairs::LinePairs(std::string const& text, std::string const& reference, InvalidUtf8 invalid_utf8)
    : paths_{text, reference}, readers_{LineReader(text, invalid_utf8), LineReader(reference, invalid_utf8)} {}

LinePairWindow LinePairs::next(std::int64_t count) {
  LinePairWindow window;
  std::size_t bytes = 0;
  std::string line;
  std::string reference;
  while (std::ssize(window.lines) < count && bytes < max_window_bytes) {
    bool const has_line = readers_[0].next(line);
    bool const has_reference = readers_[1].next(reference);
    if (has_line != has_reference) {
      LineReader& longer = readers_[has_line ? 0 : 1];
      while (longer.next(line)) {
      }
      throw DataError(fmt::format("{} has {} lines, {} has {}: line n of one must belong to line n of the other",
                                  paths_[0], readable_count(readers_[0].line_number()), paths_[1],
                                  readable_count(readers_[1].line_number())));
    }
    if (!has_line) {
      break;
    }
    bytes += line.size() + reference.size();
    window.lines.push_back({line, readers_[0].line_number()});
    window.references.push_back(reference);
  }
  if (readers_[0].line_number() == 0) {
    throw DataError(fmt::format("{} is empty: expected at least one line", paths_[0]));
  }
  return window;
}

void LinePairs::warn_of_invalid() const {
  for (std::size_t index = 0; index < paths_.size(); ++index) {
    warn_of_invalid_lines(paths_[index], readers_[index]);
  }
}

void require_equal_lines(std::string const& text, std::string const& reference, InvalidUtf8 invalid_utf8) {
  for (std::string const& path : {text, reference}) {
    std::error_code ignored;
    // A pipe can be read only once. What is not there is an error of LinePairs.
    if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
      return;
    }
  }
  LinePairs pairs(text, reference, invalid_utf8);
  while (!pairs.next(default_window).empty()) {
  }
}

}  // namespace heddle
