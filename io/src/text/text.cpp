#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unicode/utf8.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <map>
#include <utility>

#include "files/file_descriptor.hpp"
#include "text/text_bytes.hpp"

namespace heddle {
namespace {

struct CodePoint {
  char32_t value;
  std::size_t length;  ///< bytes; of ill-formed ones those for which one U+FFFD stands
  bool well_formed;
};

/// Decodes the code point at the front of a non-empty `text`. One U+FFFD stands for the start of a code point as far as
/// it is well-formed, else for one byte (Unicode 15, 3.9: maximal subparts; Python does so, too).
CodePoint first_code_point(std::string_view text) noexcept {
  auto const* const bytes = reinterpret_cast<unsigned char const*>(text.data());
  std::size_t length = 0;
  UChar32 point = 0;
  U8_NEXT(bytes, length, text.size(), point);
  return {point < 0 ? U'\0' : static_cast<char32_t>(point), length, point >= 0};
}

/// White space as Python's `str.isspace` sees it, so that metrics agree with sacreBLEU.
bool is_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace

std::filesystem::path text_path(std::filesystem::path const& given) {
  return given == "-" ? "/dev/stdin" : given;
}

bool is_read_once(std::filesystem::path const& given) {
  using Type = std::filesystem::file_type;
  std::error_code unknown;  // opening it will say what is wrong
  std::filesystem::path const path = text_path(given);
  Type const type = std::filesystem::status(path, unknown).type();
  return type == Type::fifo || type == Type::socket ||
         (type == Type::character && ::isatty(FileDescriptor(path, O_RDONLY | O_NOCTTY | O_NONBLOCK).get()) == 1);
}

void require_different_pipes(std::vector<std::filesystem::path> const& texts) {
  if (std::ranges::count(texts, std::filesystem::path("-")) > 1) {
    throw UsageError("- is given for two texts, but there is one standard input; name a file for one of them");
  }
  std::map<std::pair<dev_t, ino_t>, std::filesystem::path> pipes;
  for (std::filesystem::path const& text : texts) {
    struct stat status {};
    if (is_read_once(text) && ::stat(text_path(text).c_str(), &status) == 0 &&
        !pipes.emplace(std::pair(status.st_dev, status.st_ino), text).second) {
      throw UsageError(
          "{} is given for two texts, but it is not a file: what one of them reads, the other does not get",
          text.string());
    }
  }
}

LineReader::LineReader(std::filesystem::path const& path, InvalidUtf8 invalid_utf8, std::filesystem::path const& name)
    : path_(text_path(name.empty() ? path : name)),
      invalid_utf8_(invalid_utf8),
      bytes_(std::make_unique<TextBytes>(text_path(path))),
      buffer_(1 << 16) {}

LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader& LineReader::operator=(LineReader&&) noexcept = default;

void LineReader::fail(std::string const& what) const {
  throw DataError("{}: line {}: {}", path_.string(), lines_ + 1, what);
}

/// Reads the next block; false at the end of the file.
bool LineReader::refill() {
  try {
    rest_ = {buffer_.data(), bytes_->read(buffer_)};
  } catch (DataError const& error) {
    fail(error.what());
  }
  return !rest_.empty();
}

/// Refuses a line that is not UTF-8, or replaces what is not.
void LineReader::check_utf8(std::string& line) {
  std::size_t const wrong = find_invalid_utf8(line);
  repaired_ = wrong != std::string::npos;
  if (!repaired_) {
    return;
  }
  if (invalid_utf8_ == InvalidUtf8::fail) {
    fail(fmt::format("byte {} (0x{:02X}) is not valid UTF-8; convert the text to UTF-8, for example with iconv",
                     wrong + 1, static_cast<unsigned char>(line[wrong])));
  }
  line = replace_invalid_utf8(line);
  if (++invalid_.count == 1) {
    invalid_.first = lines_ + 1;
  }
}

bool LineReader::next(std::string& line) {
  line.clear();
  bool read_anything = false;
  bool complete = false;
  while (!complete && (!rest_.empty() || refill())) {
    read_anything = true;
    std::size_t const end = rest_.find('\n');
    complete = end != rest_.npos;
    std::string_view const part = rest_.substr(0, end);
    if (static_cast<int64_t>(line.size() + part.size()) > longest_line_bytes) {
      fail(fmt::format("longer than {} bytes; expected text with one sentence a line", longest_line_bytes));
    }
    line += part;
    rest_.remove_prefix(part.size() + (complete ? 1 : 0));
  }
  if (!read_anything) {
    return false;
  }
  if (line.ends_with('\r')) {
    line.pop_back();
  }
  check_utf8(line);
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (lines_ == 0 && line.starts_with(byte_order_mark)) {
    line.erase(0, byte_order_mark.size());
  }
  ++lines_;
  return true;
}

void LineReader::interrupt() {
  bytes_->interrupt();
}

int64_t LineReader::file_position() const noexcept {
  return bytes_->position();
}

bool LineReader::is_terminal() const {
  return bytes_->is_terminal();
}

std::size_t find_invalid_utf8(std::string_view text) noexcept {
  std::size_t position = 0;
  while (position < text.size()) {
    std::uint64_t eight = 0;  // at once, where they are ASCII
    constexpr std::uint64_t high_bits = 0x8080808080808080U;
    if (text.size() - position >= sizeof eight) {
      std::memcpy(&eight, text.data() + position, sizeof eight);
      if ((eight & high_bits) == 0) {
        position += sizeof eight;
        continue;
      }
    }
    CodePoint const point = first_code_point(text.substr(position));
    if (!point.well_formed) {
      return position;
    }
    position += point.length;
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view text) {
  constexpr std::string_view replacement = "\xEF\xBF\xBD";
  std::string result;
  while (!text.empty()) {
    std::size_t const good = std::min(find_invalid_utf8(text), text.size());
    result.append(text.substr(0, good));
    text.remove_prefix(good);
    if (!text.empty()) {
      result += replacement;
      text.remove_prefix(first_code_point(text).length);
    }
  }
  return result;
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string result;
  result.reserve(text.size());
  while (!text.empty()) {
    auto const [value, length, well_formed] = first_code_point(text);
    if (!well_formed) {
      throw DataError("byte 0x{:02X} is not valid UTF-8", static_cast<unsigned char>(text.front()));
    }
    result.push_back(value);
    text.remove_prefix(length);
  }
  return result;
}

std::string encode_utf8(std::u32string_view points) {
  std::string text;
  for (char32_t const point : points) {
    std::array<char, U8_MAX_LENGTH> bytes;
    std::size_t used = 0;
    U8_APPEND_UNSAFE(bytes.data(), used, static_cast<UChar32>(point));
    text.append(bytes.data(), used);
  }
  return text;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t word_begin = 0;
  std::size_t position = 0;
  while (position < text.size()) {
    CodePoint const point = first_code_point(text.substr(position));
    if (point.well_formed && is_space(point.value)) {
      if (position > word_begin) {
        words.push_back(text.substr(word_begin, position - word_begin));
      }
      word_begin = position + point.length;
    }
    position += point.length;
  }
  if (position > word_begin) {
    words.push_back(text.substr(word_begin));
  }
  return words;
}

}  // namespace heddle
