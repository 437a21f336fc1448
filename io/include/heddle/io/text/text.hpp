#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

class TextBytes;

/// The treatment of lines that are not UTF-8.
enum class InvalidUtf8 : std::uint8_t {
  fail,     ///< an error that names file, line and byte
  replace,  ///< U+FFFD takes the place of each ill-formed sequence
  skip      ///< replaced, too: the reader of the lines leaves out those that are `repaired()`
};

/// The path of a text that a command line names: "-" is the standard input, /dev/stdin.
std::filesystem::path text_path(std::filesystem::path const& given);
/// Whether a text can be read only once: a pipe, a terminal, the standard input unless it is a file.
bool is_read_once(std::filesystem::path const& given);
/// Throws UsageError where texts that are read together are twice the same pipe or terminal.
void require_different_pipes(std::vector<std::filesystem::path> const& texts);

/// Reads a text line by line, plain, gzip or zstd (recognised by the first bytes, not by the name), in bounded memory,
/// and returns each line as soon as its end is there. A line ends with "\n" or "\r\n", the last one also with "\r" or
/// nothing; a byte-order mark at the start of the text is dropped.
class LineReader {
 public:
  /// The longest line allowed; a file with a longer one is not "one sentence a line".
  static constexpr int64_t longest_line_bytes = int64_t{16} << 20;

  /// Lines that were not UTF-8.
  struct InvalidLines {
    int64_t count = 0;
    int64_t first = 0;  ///< its number, from 1
  };

  /// Opens text_path(path). Messages have `name`, if it is given, in place of the path. Throws DataError when the file
  /// cannot be opened.
  explicit LineReader(std::filesystem::path const& path, InvalidUtf8 invalid_utf8 = InvalidUtf8::fail,
                      std::filesystem::path const& name = {});
  ~LineReader();
  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;

  /// Reads a line into `line`, without its end, and returns true; false at the end of the file. Throws DataError,
  /// naming the file and the line number, for bytes that are not UTF-8 (with InvalidUtf8::fail), a line that is too
  /// long, a damaged or truncated gzip or zstd stream, a failed read.
  bool next(std::string& line);
  /// Ends a wait for bytes in another thread: `next` throws Error, there and from now on.
  void interrupt();

  std::filesystem::path const& path() const noexcept { return path_; }
  /// The number of lines read so far, which is the number (from 1) of the latest line.
  int64_t line_number() const noexcept { return lines_; }

  /// The bytes read so far of the file on the disk (compressed ones), for progress reports.
  int64_t file_position() const noexcept;

  /// The lines so far that were not UTF-8.
  InvalidLines invalid_lines() const noexcept { return invalid_; }
  /// Whether the latest line was one of them.
  bool repaired() const noexcept { return repaired_; }

  /// Whether the text comes from a terminal.
  bool is_terminal() const;

 private:
  [[noreturn]] void fail(std::string const& what) const;
  bool refill();
  void check_utf8(std::string& line);

  std::filesystem::path path_;
  InvalidUtf8 invalid_utf8_;
  std::unique_ptr<TextBytes> bytes_;
  std::vector<char> buffer_;
  std::string_view rest_;  ///< of the buffer
  int64_t lines_ = 0;
  InvalidLines invalid_;
  bool repaired_ = false;
};

/// The offset of the first byte that is not part of well-formed UTF-8 (no surrogates, nothing overlong, nothing above
/// U+10FFFF), or npos.
std::size_t find_invalid_utf8(std::string_view text) noexcept;

/// `text` with U+FFFD in place of each ill-formed sequence, by the rule of Unicode's maximal subparts (as Python's
/// errors="replace").
std::string replace_invalid_utf8(std::string_view text);

/// The code points of `text`. Throws DataError if it is not well-formed UTF-8.
std::u32string decode_utf8(std::string_view text);
/// The UTF-8 of code points, of which none is a surrogate or above U+10FFFF.
std::string encode_utf8(std::u32string_view points);

/// Splits at runs of Unicode white space, as Python's `str.split()` does; returns views into `text`, which is UTF-8.
std::vector<std::string_view> split_words(std::string_view text);

}  // namespace heddle
