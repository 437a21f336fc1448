#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <heddle/core/generation/generation.hpp>
#include <heddle/io/text/text.hpp>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "command_line/options.hpp"
#include "trained_model.hpp"

namespace heddle {

/// The options --beam, --length-penalty, --max-length, --batch-tokens; `input` and `output` are words for the help:
/// "sentence" and "translation". require_valid checks their values.
void add_generation_options(OptionsDescription& description, GenerationOptions& options, char const* input,
                            char const* output);

inline constexpr std::int64_t default_window = 2000;
/// A window is also bounded in bytes, for texts whose lines are not sentences.
inline constexpr std::size_t max_window_bytes = std::size_t{16} << 20;

/// A text that is read in windows of lines, which are computed together.
struct WindowOptions {
  std::string input = {};                   ///< "": the standard input
  std::optional<std::int64_t> window = {};  ///< lines; none: default_window, or 1 where somebody types them
  InvalidUtf8 invalid_utf8 = InvalidUtf8::replace;
};
/// The options --window and --invalid-utf8. `done` says what is done with the lines: "translated".
void add_window_options(OptionsDescription& description, WindowOptions& options, std::string const& done);

/// A line of a text, with its number from 1, and the same line of the reference, if there is one.
struct SourceLine {
  std::string text;
  std::int64_t number = 0;
  std::string reference = {};
};

/// A text, alone or side by side with its references.
class LineWindows {
 public:
  /// Opens the texts; `reference` "" is none. Throws DataError if one cannot be opened.
  explicit LineWindows(WindowOptions const& options, std::string const& reference = "");

  /// The next lines, at most as many as the window has; none at the end of the text. Waits for no further line. Throws
  /// DataError as LineReader::next does, and where the text is empty or one text ends before the other.
  std::vector<SourceLine> next();

  std::string path() const { return readers_.front().path().string(); }
  /// Warns of lines that were not UTF-8, once for each text that has them.
  void warn_of_invalid() const;

 private:
  [[noreturn]] void throw_unequal();

  std::vector<LineReader> readers_;
  std::int64_t window_;
};

/// Throws DataError as LineWindows does, before anything is computed; texts that cannot be read twice are skipped.
void require_equal_lines(WindowOptions const& options, std::string const& reference);

/// Warns if lines of a text that was read were not UTF-8: how many, and the first one.
void warn_of_invalid_lines(LineReader const& reader);

/// A command that makes other lines of the lines of a text, with a model.
struct TextCommandOptions {
  TrainedModelOptions model;
  GenerationOptions generation;
  WindowOptions text;
  std::string output = {};  ///< "": the standard output
};
/// Adds all of their options; the words are explained at add_generation_options and add_window_options.
void add_text_command_options(OptionsDescription& description, TextCommandOptions& options, char const* input,
                              char const* output, std::string const& done);
/// Writes the result of `convert` for each window of the text, a line for each line or more. `command` is for messages.
/// Throws UsageError, and what opening the model throws, before the output is opened.
void convert_text(TextCommandOptions const& options, std::string const& command, ModelRequirement const& require,
                  std::function<std::string(TrainedModel&, std::vector<SourceLine> const&)> const& convert);

/// The standard output, or a file that is replaced.
class TextOutput {
 public:
  /// `path` "" is the standard output. Throws UsageError if it is one of the texts that are still to be read, under
  /// any name, and Error if it cannot be opened.
  TextOutput(std::string const& path, std::vector<std::string> const& inputs);

  /// Writes and flushes. Throws Error if not all of it could be written.
  void write(std::string const& text);

 private:
  void check() const;

  std::string path_;
  std::ofstream file_;
};

struct Translation {
  std::string text;
  double score = 0;
};

/// The translations of each line, the best first; a line with only white space gives one empty translation with score
/// 0. A line that is too long for the model loses its end, and standard error names it.
std::vector<std::vector<Translation>> translate(TrainedModel& model, std::vector<SourceLine> const& lines,
                                                GenerationOptions const& options);

}  // namespace heddle
