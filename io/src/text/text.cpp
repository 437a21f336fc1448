#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <utility>

namespace heddle {
namespace {

struct CloseGzip {
  void operator()(gzFile file) const noexcept { gzclose_r(file); }
};
using GzipHandle = std::unique_ptr<gzFile_s, CloseGzip>;

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

/// White space as Python's `str.isspace` sees it, so that metrics agree with sacreBLEU.
bool is_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace

struct LineReader::State {
  std::filesystem::path path;
  GzipHandle file;
  std::array<char, 1 << 16> buffer{};
  std::size_t position = 0;
  std::size_t filled = 0;
  int64_t lines = 0;
  std::string failure;  ///< reported once the bytes read before it are used up

  [[noreturn]] void fail(std::string const& what) const {
    throw DataError(fmt::format("{}: line {}: {}", path.string(), lines + 1, what));
  }

  /// Reads the next block; false at the end of the file.
  bool refill() {
    if (!failure.empty()) {
      fail(failure);
    }
    errno = 0;
    int const count = gzread(file.get(), buffer.data(), static_cast<unsigned>(buffer.size()));
    int code = Z_OK;
    char const* const message = gzerror(file.get(), &code);
    // A truncated stream returns its last bytes first and Z_BUF_ERROR with them.
    if (count < 0 || code == Z_BUF_ERROR) {
      failure = code == Z_ERRNO ? fmt::format("cannot read: {}", std::strerror(errno))
                                : fmt::format("damaged or cut-off gzip data ({})", message);
      if (count <= 0) {
        fail(failure);
      }
    }
    position = 0;
    filled = static_cast<std::size_t>(count);
    return count > 0;
  }
};

LineReader::LineReader(std::filesystem::path const& path) : state_(std::make_unique<State>()) {
  state_->path = path;
  errno = 0;
  state_->file.reset(gzopen(path.c_str(), "rb"));
  if (!state_->file) {
    throw DataError(fmt::format("{}: cannot open this text: {}", path.string(), std::strerror(errno)));
  }
  gzbuffer(state_->file.get(), 1U << 17U);
}

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
  std::size_t const invalid = find_invalid_utf8(line);
  if (invalid != std::string::npos) {
    state.fail(fmt::format("byte {} (0x{:02X}) is not valid UTF-8; convert the text to UTF-8, for example with iconv",
                           invalid + 1, static_cast<unsigned char>(line[invalid])));
  }
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
  return std::max<int64_t>(0, static_cast<int64_t>(gzoffset(state_->file.get())));
}

std::vector<std::string> read_lines(std::filesystem::path const& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) {
    lines.push_back(line);
  }
  return lines;
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
