#pragma once

#include <cstdint>
#include <heddle/io/text/text.hpp>
#include <optional>
#include <string>
#include <vector>

#include "corpus/chunks.hpp"

namespace heddle {

/// A text that is read line by line.
struct TextOptions {
  /// Lines of a chunk: enough to keep a processor busy, and few enough that a text has chunks for many.
  static constexpr std::int64_t default_window = 256;

  std::string input = {};                   ///< "": the standard input
  std::optional<std::int64_t> window = {};  ///< lines of a chunk; none: default_window, or 1 on a terminal
  InvalidUtf8 invalid_utf8 = InvalidUtf8::replace;
  bool adapter_column = false;  ///< a line is NAME<TAB>TEXT
  std::string prefix = {};      ///< a text whose line n is what the output for line n starts with; "": none
  bool prefix_column = false;   ///< a line is TEXT<TAB>PREFIX
  bool stream = false;          ///< each line is answered before the next one is read
};

/// Throws UsageError for options that exclude each other.
void require_valid(TextOptions const& options);

/// The source of lines: a text, or a text with its references and prefixes, read together.
class LineSource {
 public:
  /// Opens the texts. Throws DataError if one cannot be opened.
  explicit LineSource(TextOptions const& options, std::vector<std::string> const& references = {});

  /// Reads the next line; false at the end of the text. Throws DataError as LineReader::next does, and where the text
  /// is empty, one text ends before the other or a line has no column of adapters or prefixes.
  bool next(SourceLine& line);
  /// Reads the next lines, as many as a chunk has: options.window, or fewer with 16 MiB; nothing at the end of the
  /// text.
  std::optional<Chunk> next_chunk();

  std::string path() const { return readers_.front().path().string(); }
  /// Whether each line is answered before the next one is read, as where somebody types them.
  bool answers_each_line() const { return window_ == 1; }
  /// The share of the text that has been read, 0 to 1; nothing if its length is not known.
  std::optional<double> progress() const;
  /// Warns of lines that were not UTF-8, once for each text that has them.
  void warn_of_invalid() const;

 private:
  [[noreturn]] void throw_unequal(LineReader& other);

  void take_columns(SourceLine& line) const;

  std::vector<LineReader> readers_;  ///< of the text, the references and the prefixes
  std::int64_t window_;
  TextOptions options_;
};

/// Throws DataError as LineSource does, before anything is computed; texts that cannot be read twice are skipped.
void require_equal_lines(TextOptions const& options, std::vector<std::string> const& references);

/// Warns if lines of a text that was read were not UTF-8: how many, and the first one.
void warn_of_invalid_lines(LineReader const& reader);

}  // namespace heddle
