#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle {

/// The width of lines of help, at least 40: COLUMNS, or the terminal's up to 110, or 110 without a terminal on the
/// standard output.
std::size_t help_columns();

/// The text's words in lines of at most `columns`, with `indent` spaces before all but the first, whose caller has
/// written as much. An empty line stays.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent = 0);

/// "Usage: heddle COMMAND USAGE" in lines of at most `columns`, none of which ends within brackets, unless what is in
/// them is longer than a line. A line of `usage` is one form of the command and begins a line.
std::string wrapped_usage(std::string_view command, std::string_view usage, std::size_t columns);

}  // namespace heddle
