#pragma once

#include <cstdint>
#include <heddle/io/text/text.hpp>
#include <string>
#include <vector>

namespace heddle {

/// A line of a text and its origin.
struct SourceLine {
  std::string text;
  std::int64_t number = 0;  ///< from 1
};

/// The next lines, at most `count`; none at the end of the text.
std::vector<SourceLine> read_window(LineReader& reader, std::int64_t count);

}  // namespace heddle
