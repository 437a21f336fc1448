#include "command_line/terminal.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace heddle {

std::size_t help_columns() {
  constexpr std::size_t default_columns = 110;
  constexpr std::size_t min_columns = 40;
  std::size_t columns = 0;
  if (char const* const given = std::getenv("COLUMNS")) {
    std::string_view const text(given);
    std::from_chars(text.data(), text.data() + text.size(), columns);
  }
  winsize terminal{};
  if (columns == 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal) == 0) {
    columns = std::min<std::size_t>(terminal.ws_col, default_columns);
  }
  return columns == 0 ? default_columns : std::max(columns, min_columns);
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
  std::string const next_line = "\n" + std::string(indent, ' ');
  std::string result;
  std::size_t length = indent;  // of the last line
  while (!text.empty()) {
    std::size_t const end = std::min(text.find_first_of(" \n"), text.size());
    if (end > 0 && length > indent) {
      bool const fits = length + 1 + end <= columns;
      result += fits ? " " : next_line;
      length = fits ? length + 1 : indent;
    }
    result += text.substr(0, end);
    length += end;
    if (text.substr(end).starts_with("\n\n")) {
      result += "\n" + next_line;
      length = indent;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

std::string wrapped_usage(std::string_view command, std::string_view usage, std::size_t columns) {
  constexpr std::size_t indent = std::string_view("Usage: ").size();  // and of "   or: "
  constexpr char space_in_brackets = '\x01';
  std::string text = fmt::format("Usage: heddle {} {}", command, usage);
  for (std::size_t open = text.find('['); open != text.npos; open = text.find('[', open + 1)) {
    auto const begin = text.begin() + static_cast<std::ptrdiff_t>(open);
    auto const end = std::find(begin, text.end(), ']');
    if (end - begin < static_cast<std::ptrdiff_t>(columns - indent)) {
      std::replace(begin, end, ' ', space_in_brackets);
    }
  }
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    std::string_view const line = std::string_view(text).substr(begin, text.find('\n', begin) - begin);
    result += begin == 0 ? "" : "\n";
    result.append(line.substr(0, indent)).append(wrapped(line.substr(indent), columns, indent));
    begin += line.size() + 1;
  }
  std::ranges::replace(result, space_in_brackets, ' ');
  return result;
}

}  // namespace heddle
