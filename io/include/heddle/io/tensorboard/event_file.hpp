#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/io/tensorboard/grey_image.hpp>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

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
  void write_summary(std::int64_t step, std::string_view value);
  void write_record(std::string_view content);

  std::filesystem::path path_;
  std::unique_ptr<std::ostream> file_;
};

/// CRC-32C (Castagnoli, as in RFC 3720) of the bytes.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace heddle
