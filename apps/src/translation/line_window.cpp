#include "line_window.hpp"

namespace heddle {

std::vector<SourceLine> read_window(LineReader& reader, std::int64_t count) {
  // A window is also bounded in bytes, for texts whose lines are not sentences.
  constexpr std::size_t most_bytes = std::size_t{16} << 20;
  std::vector<SourceLine> lines;
  std::size_t bytes = 0;
  std::string line;
  while (static_cast<std::int64_t>(lines.size()) < count && bytes < most_bytes && reader.next(line)) {
    bytes += line.size();
    lines.push_back({line, reader.line_number()});
  }
  return lines;
}

}  // namespace heddle
