#include <fmt/format.h>
#include <zlib.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/tensorboard/event_file.hpp>
#include <limits>
#include <string_view>

namespace heddle {

namespace {

void append_big_endian(std::string& to, std::uint32_t value) {
  for (unsigned shift = 32; shift > 0; shift -= 8) {
    to += static_cast<char>(static_cast<unsigned char>(value >> (shift - 8) & 0xffU));
  }
}

void append_chunk(std::string& to, std::string_view type, std::string_view content) {
  append_big_endian(to, static_cast<std::uint32_t>(content.size()));
  std::string const checked = std::string(type) + std::string(content);
  to += checked;
  append_big_endian(
      to, static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<Bytef const*>(checked.data()), checked.size())));
}

std::string compressed(std::string const& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string result(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(result.data()), &size, reinterpret_cast<Bytef const*>(bytes.data()),
                bytes.size(), Z_BEST_SPEED) != Z_OK) {
    throw Error("an image cannot be compressed: not enough memory");
  }
  result.resize(size);
  return result;
}

}  // namespace

std::string to_png(GreyImage const& image) {
  constexpr std::int64_t max = std::numeric_limits<std::int32_t>::max();
  bool const possible = image.width > 0 && image.height > 0 && image.width <= max && image.height <= max;
  if (!possible || static_cast<std::int64_t>(image.pixels.size()) != image.width * image.height) {
    throw Error("an image of {} x {} has {} pixels; expected at least one row and column, and their product",
                image.width, image.height, image.pixels.size());
  }
  std::string header;
  append_big_endian(header, static_cast<std::uint32_t>(image.width));
  append_big_endian(header, static_cast<std::uint32_t>(image.height));
  // Eight bits, grey; then the only compression and the only kind of filters, and no interlacing.
  header += std::string_view("\x08\x00\x00\x00\x00", 5);
  std::string rows;
  for (std::int64_t row = 0; row < image.height; ++row) {
    rows += '\0';  // this row has no filter
    rows.append(reinterpret_cast<char const*>(image.pixels.data()) + row * image.width,
                static_cast<std::size_t>(image.width));
  }
  std::string file = "\x89PNG\r\n\x1a\n";
  append_chunk(file, "IHDR", header);
  append_chunk(file, "IDAT", compressed(rows));
  append_chunk(file, "IEND", "");
  return file;
}

}  // namespace heddle
