#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <utility>

#include "text_bytes.hpp"

namespace heddle {
namespace {

struct CodePoint {
  char32_t value;
  std::size_t length;  ///< bytes; 0 if the bytes are not well-formed
};

/// Decodes the code point at the front of a non-empty `text`.
CodePoint first_code_point(std::string_view text) noexcept {
  auto const byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  unsigned char const lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1};
  }
  std::size_t const length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) {
    return {0, 0};
  }
  char32_t value = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) {
      return {0, 0};
    }
    value = (value << 6U) | (byte(i) & 0x3FU);
  }
  bool const overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  bool const surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) {
    return {0, 0};
  }
  return {value, length};
}

/// The bytes at the front of `text`, which does not begin with a code point, that one U+FFFD stands for: the beginning
/// of a code point as far as it is well-formed, else one byte (Unicode 15, 3.9: maximal subparts; Python does so, too).
std::size_t ill_formed_length(std::string_view text) noexcept {
  auto const byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  unsigned char const lead = byte(0);
  if (lead < 0xC2 || lead > 0xF4) {
    return 1;
  }
  std::size_t const wanted = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  // The second byte's bounds leave out what is overlong, a surrogate or above U+10FFFF.
  unsigned char const min = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char const max = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (text.size() < 2 || byte(1) < min || byte(1) > max) {
    return 1;
  }
  std::size_t length = 2;
  while (length < wanted && length < text.size() && (byte(length) & 0xC0U) == 0x80U) {
    ++length;
  }
  return length;
}

/// White space as Python's `str.isspace` sees it, so that metrics agree with sacreBLEU.
bool is_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace

struct LineReader::State {
  std::filesystem::path path;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::fail;
  TextBytes bytes;
  std::array<char, 1 << 16> buffer{};
  std::size_t position = 0;
  std::size_t filled = 0;
  int64_t lines = 0;
  InvalidLines invalid{};
  bool repaired = false;

  [[noreturn]] void fail(std::string const& what) const {
    throw DataError(fmt::format("{}: line {}: {}", path.string(), lines + 1, what));
  }

  /// Reads the next block; false at the end of the file.
  bool refill() {
    position = 0;
    filled = 0;
    try {
      filled = bytes.read(buffer);
    } catch (DataError const& error) {
      fail(error.what());
    }
    return filled > 0;
  }

  /// Refuses a line that is not UTF-8, or replaces what is not.
  void check_utf8(std::string& line) {
    std::size_t const wrong = find_invalid_utf8(line);
    repaired = wrong != std::string::npos;
    if (!repaired) {
      return;
    }
    if (invalid_utf8 == InvalidUtf8::fail) {
      fail(fmt::format("byte {} (0x{:02X}) is not valid UTF-8; convert the text to UTF-8, for example with iconv",
                       wrong + 1, static_cast<unsigned char>(line[wrong])));
    }
    line = replace_invalid_utf8(line);
    ++invalid.count;
    if (invalid.count == 1) {
      invalid.first = lines + 1;
    }
  }
};

LineReader::LineReader(std::filesystem::path const& path, InvalidUtf8 invalid_utf8)
    : state_(new State{.path = path, .invalid_utf8 = invalid_utf8, .bytes = TextBytes(path)}) {}

LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader& LineReader::operator=(LineReader&&) noexcept = default;

bool LineReader::next(std::string& line) {
  State& state = *state_;
  line.clear();
  bool read_anything = false;
  bool complete = false;
  while (!complete && (state.position < state.filled || state.refill())) {
    read_anything = true;
    char const* const begin = state.buffer.data() + state.position;
    std::size_t const available = state.filled - state.position;
    auto const* const end = static_cast<char const*>(std::memchr(begin, '\n', available));
    complete = end != nullptr;
    std::size_t const count = complete ? static_cast<std::size_t>(end - begin) : available;
    if (static_cast<int64_t>(line.size() + count) > longest_line_bytes) {
      state.fail(fmt::format("longer than {} bytes; expected text with one sentence a line", longest_line_bytes));
    }
    line.append(begin, count);
    state.position += count + (complete ? 1 : 0);
  }
  if (!read_anything) {
    return false;
  }
  if (line.ends_with('\r')) {
    line.pop_back();
  }
  state.check_utf8(line);
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (state.lines == 0 && line.starts_with(byte_order_mark)) {
    line.erase(0, byte_order_mark.size());
  }
  ++state.lines;
  return true;
}

int64_t LineReader::line_number() const noexcept {
  return state_->lines;
}

int64_t LineReader::file_position() const noexcept {
  return state_->bytes.position();
}

LineReader::InvalidLines LineReader::invalid_lines() const noexcept {
  return state_->invalid;
}

bool LineReader::repaired() const noexcept {
  return state_->repaired;
}

bool LineReader::is_terminal() const {
  return state_->bytes.is_terminal();
}

std::size_t find_invalid_utf8(std::string_view text) noexcept {
  std::size_t position = 0;
  while (position < text.size()) {
    std::size_t const length = first_code_point(text.substr(position)).length;
    if (length == 0) {
      return position;
    }
    position += length;
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
      text.remove_prefix(ill_formed_length(text));
    }
  }
  return result;
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string result;
  result.reserve(text.size());
  while (!text.empty()) {
    auto const [value, length] = first_code_point(text);
    if (length == 0) {
      throw DataError(fmt::format("byte 0x{:02X} is not valid UTF-8", static_cast<unsigned char>(text.front())));
    }
    result.push_back(value);
    text.remove_prefix(length);
  }
  return result;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t word_begin = 0;
  std::size_t position = 0;
  while (position < text.size()) {
    CodePoint const point = first_code_point(text.substr(position));
    std::size_t const length = std::max<std::size_t>(point.length, 1);
    if (point.length > 0 && is_space(point.value)) {
      if (position > word_begin) {
        words.push_back(text.substr(word_begin, position - word_begin));
      }
      word_begin = position + length;
    }
    position += length;
  }
  if (position > word_begin) {
    words.push_back(text.substr(word_begin));
  }
  return words;
}

}  // namespace heddle
