#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <heddle/io/text/text.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// A line of a text and its origin.
struct SourceLine {
  std::string text;
  std::int64_t number = 0;  ///< from 1
};

/// A text that is read in windows of lines, which are computed together.
struct WindowOptions {
  std::string input;                   ///< "": the standard input
  std::optional<std::int64_t> window;  ///< lines; none: default_window, or 1 where somebody types them
  InvalidUtf8 invalid_utf8 = InvalidUtf8::replace;
};

inline constexpr std::int64_t default_window = 2000;
/// A window is also bounded in bytes, for texts whose lines are not sentences.
inline constexpr std::size_t max_window_bytes = std::size_t{16} << 20;

/// The option --window, at least 1.
void add_window(boost::program_options::options_description& description, std::optional<std::int64_t>& window,
                std::string const& help);

/// The options --input, --window and --invalid-utf8. `done` says what is done with the lines: "translated".
void add_window_options(boost::program_options::options_description& description, WindowOptions& options,
                        std::string const& done);

class LineWindows {
 public:
  /// Opens the text. Throws DataError if it cannot be opened.
  explicit LineWindows(WindowOptions const& options);

  /// The next lines, at most as many as the window has; none at the end of the text. Waits for no further line. Throws
  /// DataError as LineReader::next does.
  std::vector<SourceLine> next();

  std::string const& path() const { return path_; }
  /// Warns of lines that were not UTF-8, if there were any.
  void warn_of_invalid() const;

 private:
  std::string path_;
  LineReader reader_;
  std::int64_t window_;
};

}  // namespace heddle
