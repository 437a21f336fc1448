#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/io/text/text.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// A file of a text: all of it, or a column of a file whose lines have tabs between columns.
struct TextFile {
  TextFile(std::filesystem::path file, std::int64_t of_line = 0, std::int64_t of_columns = 0)
      : path(std::move(file)), column(of_line), columns(of_columns) {}

  std::filesystem::path path;
  std::int64_t column;              ///< from 1 on; 0: the whole line
  std::int64_t columns;             ///< that each line has; 0: any number, as long as `column` is there
  std::filesystem::path copy = {};  ///< the file to read in place of `path`, which messages name; empty: `path`
};

/// The part's column of a line, the file's line `number`: all of it, where the part has no column. Throws DataError for
/// a line without the part's columns.
std::string_view column_of(std::string_view line, TextFile const& part, std::int64_t number);

/// Reads the lines of files one after another as one text.
class TextFilesReader {
 public:
  explicit TextFilesReader(std::vector<TextFile> parts, InvalidUtf8 invalid_utf8 = InvalidUtf8::fail);

  /// Reads a line as LineReader::next does. Throws DataError also for a line without the part's columns, and for a file
  /// without lines.
  bool next(std::string& line);

  /// The number of lines read so far, of all files.
  std::int64_t line_number() const { return lines_; }
  /// The bytes read so far on the disk, of all files.
  std::int64_t file_position() const { return bytes_ + (reader_ ? reader_->file_position() : 0); }
  /// Whether the latest line was not UTF-8.
  bool repaired() const { return reader_ && reader_->repaired(); }

 private:
  std::vector<TextFile> parts_;
  InvalidUtf8 invalid_utf8_;
  std::size_t part_ = 0;  ///< the one that `reader_` reads
  std::optional<LineReader> reader_;
  std::int64_t lines_ = 0;
  std::int64_t bytes_ = 0;  ///< of parts that have been read
};

}  // namespace heddle
