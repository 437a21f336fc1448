#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Reads a text line by line, plain or gzip (recognised by the first bytes, not by the name), in bounded memory. A
/// line ends with "\n" or "\r\n", the last one also with "\r" or nothing; a byte-order mark at the very beginning is
/// dropped.
class LineReader {
 public:
  /// The longest line allowed; a file with a longer one is not "one sentence a line".
  static constexpr int64_t longest_line_bytes = int64_t{16} << 20;

  /// Throws DataError when the file cannot be opened.
  explicit LineReader(std::filesystem::path const& path);
  ~LineReader();
  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;

  /// Reads a line into `line`, without its end, and returns true; false at the end of the file. Throws DataError,
  /// naming the file and the line number, for bytes that are not UTF-8, a line that is too long, a damaged or
  /// truncated gzip stream, a failed read.
  bool next(std::string& line);

  /// The number of lines read so far, which is the number (from 1) of the latest line.
  int64_t line_number() const noexcept;

  /// The bytes read so far of the file on the disk (compressed for gzip), for progress reports.
  int64_t file_position() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Reads the whole text, one string a line. For validation and test sets, which fit in memory.
std::vector<std::string> read_lines(std::filesystem::path const& path);

/// The offset of the first byte that is not part of well-formed UTF-8 (no surrogates, nothing overlong, nothing above
/// U+10FFFF), or npos.
std::size_t find_invalid_utf8(std::string_view text) noexcept;

/// The code points of `text`. Throws DataError if it is not well-formed UTF-8.
std::u32string decode_utf8(std::string_view text);

/// Splits at runs of Unicode white space, as Python's `str.split()` does; returns views into `text`, which is UTF-8.
std::vector<std::string_view> split_words(std::string_view text);

}  // namespace heddle
