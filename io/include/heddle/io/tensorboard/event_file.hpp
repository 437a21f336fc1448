#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// An image in shades of grey.
struct GreyImage {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> pixels{};  ///< [height, width], the top row first; 0 is black, 255 white
};

/// The image as a PNG file (ISO/IEC 15948) with eight bits per pixel. Throws Error for an image without pixels, of 2^31
/// or more columns or rows, or with another number of pixels than its size says.
std::string to_png(GreyImage const& image);

/// A file of events that TensorBoard shows: TFRecords (length, masked CRC-32C, content, its masked CRC-32C), each with
/// a protocol buffer tensorflow.Event.
class EventFile {
 public:
  /// Makes a new file in `directory`, which is made if it does not exist. TensorBoard hides values of other files there
  /// from `first_step` on. Throws Error if it cannot be made.
  EventFile(std::filesystem::path const& directory, std::int64_t first_step);

  std::filesystem::path const& path() const { return path_; }

  void scalar(std::int64_t step, std::string_view tag, double value);
  /// A histogram of these values, of which those that are not finite are left out.
  void histogram(std::int64_t step, std::string_view tag, std::span<double const> values);
  /// Text in Markdown.
  void text(std::int64_t step, std::string_view tag, std::string_view text);
  /// Throws Error as to_png does.
  void image(std::int64_t step, std::string_view tag, GreyImage const& picture);
  /// Throws Error if something could not be written.
  void flush();

 private:
  /// Writes an event with this field.
  void write_event(std::int64_t step, int field, std::string_view value);
  void write_summary(std::int64_t step, std::string_view value);

  std::filesystem::path path_;
  std::unique_ptr<std::ostream> file_;
};

/// CRC-32C (Castagnoli, as in RFC 3720) of the bytes.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace heddle
