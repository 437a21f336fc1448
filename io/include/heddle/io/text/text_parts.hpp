#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/io/text/text.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// A file of a text: all of it, or one side of a file whose lines are SOURCE<TAB>TARGET.
struct TextPart {
  enum class Side : std::uint8_t { whole_line, source, target };

  TextPart(std::filesystem::path file, Side of_line = Side::whole_line) : path(std::move(file)), side(of_line) {}

  std::filesystem::path path;
  Side side;
};

/// Reads the lines of files one after another as one text.
class PartsReader {
 public:
  explicit PartsReader(std::vector<TextPart> parts, InvalidUtf8 invalid_utf8 = InvalidUtf8::fail);

  /// Reads a line as LineReader::next does. Throws DataError also for a line without exactly one tab where a side of it
  /// is wanted, and for a file without lines.
  bool next(std::string& line);

  /// The number of lines read so far, of all files.
  std::int64_t line_number() const { return lines_; }
  /// The bytes read so far on the disk, of all files.
  std::int64_t file_position() const { return bytes_ + (reader_ ? reader_->file_position() : 0); }
  /// Whether the latest line was not UTF-8.
  bool repaired() const { return reader_ && reader_->repaired(); }

 private:
  std::vector<TextPart> parts_;
  InvalidUtf8 invalid_utf8_;
  std::size_t part_ = 0;  ///< the one that `reader_` reads
  std::optional<LineReader> reader_;
  std::int64_t lines_ = 0;
  std::int64_t bytes_ = 0;  ///< of parts that have been read
};

}  // namespace heddle
