#pragma once

#include <heddle/io/text/text.hpp>
#include <string>
#include <vector>

namespace heddle {

/// All lines of a text.
inline std::vector<std::string> read_lines(std::filesystem::path const& path,
                                           InvalidUtf8 invalid_utf8 = InvalidUtf8::fail) {
  LineReader reader(path, invalid_utf8);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace heddle
