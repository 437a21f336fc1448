#pragma once

#include <cstdint>
#include <exception>
#include <heddle/core/config/config.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// The amount of text on the terminal; files of a run get all of it.
enum class Verbosity : std::uint8_t {
  quiet,    ///< warnings and the last lines of a run
  normal,   ///< also a short start, progress and notes
  verbose,  ///< also the whole configuration and all tables
};

/// The message with its control characters escaped, "\x1b": a file's name may have some, which a terminal would obey.
/// Line feeds and tabs stay.
std::string printable(std::string_view message);

/// An error's message; of one of std::filesystem "PATH: REASON".
std::string describe(std::exception const& error);

/// Prints "heddle: warning: MESSAGE" to the standard error: in colour on a terminal, unless NO_COLOR is set; nothing
/// for "".
void warn(std::string const& message);

/// Prints each of warnings_about(config) as `warn` does.
void print_warnings(Config const& config);
/// Prints "note: NOTE" lines to the standard output.
void print_notes(std::vector<std::string> const& notes);
/// Prints "heddle: MESSAGE" to the standard error, in one call, as ranks may print at the same time. Paths of files
/// that were being written are those which they would have got (with_targets).
void report_on_stderr(std::string const& message);

}  // namespace heddle
