#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <boost/crc.hpp>
#include <chrono>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/tensorboard/event_file.hpp>
#include <limits>
#include <numeric>

namespace heddle {

namespace {

constexpr std::size_t max_buckets = 30;

// Fields of tensorflow.Event, Summary, Summary.Value and the messages inside, by their names in TensorFlow's
// event.proto, summary.proto and tensor.proto.
namespace event {
constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace session_log {
constexpr int status = 1, status_start = 1;
}
namespace value {
constexpr int summary = 1, tag = 1, simple_value = 2, image = 4, histogram = 5, tensor = 8, metadata = 9;
constexpr int plugin_data = 1, plugin_name = 1;
}  // namespace value
namespace histogram {
constexpr int min = 1, max = 2, count = 3, sum = 4, sum_of_squares = 5, bucket_limits = 6, buckets = 7;
}
namespace image {
constexpr int height = 1, width = 2, colorspace = 3, encoded = 4;
constexpr int grey = 1;  // a colorspace
}  // namespace image
namespace tensor {
constexpr int dtype = 1, dtype_string = 7, shape = 2, dimension = 2, size = 1, string_value = 8;
}

/// Appends the value's bytes, the lowest first.
template <class Value>
void append_little_endian(std::string& to, Value value) {
  for (std::size_t byte = 0; byte < sizeof value; ++byte) {
    to += static_cast<char>(static_cast<unsigned char>(value >> (8 * byte) & 0xffU));
  }
}

/// A message of protocol buffers, written field by field.
class Message {
 public:
  Message& integer(int field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& number(int field, double value) {
    key(field, 1);
    append_little_endian(content_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& number(int field, float value) {
    key(field, 5);
    append_little_endian(content_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  /// A field of bytes, a string or another message.
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    content_ += value;
    return *this;
  }
  /// A packed field of numbers.
  Message& numbers(int field, std::span<double const> values) {
    std::string packed;
    for (double const value : values) {
      append_little_endian(packed, std::bit_cast<std::uint64_t>(value));
    }
    return bytes(field, packed);
  }

  std::string const& content() const { return content_; }

 private:
  void key(int field, unsigned wire_type) { varint(static_cast<std::uint64_t>(field) << 3U | wire_type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) {
      content_ += static_cast<char>(static_cast<unsigned char>(value | 0x80U));
    }
    content_ += static_cast<char>(value);
  }

  std::string content_;
};

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

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::uint32_t masked_crc(std::string_view bytes) {
  std::uint32_t const crc = crc32c(bytes);
  return (crc >> 15U | crc << 17U) + 0xa282ead8U;
}

/// Names follow each other in the order of the starts, because TensorBoard reads files in the order of their names.
std::filesystem::path new_name(std::filesystem::path const& directory) {
  return directory / fmt::format("events.out.tfevents.{:017.6f}.{}.{}", now(), host_name(), getpid());
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

std::uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

EventFile::EventFile(std::filesystem::path const& directory, std::int64_t first_step) {
  make_directory(directory);
  path_ = new_name(directory);
  file_ = open_output(path_, OutputMode::create_new);
  write_event(0, event::file_version, "brain.Event:2");
  write_event(first_step, event::session_log,
              Message().integer(session_log::status, session_log::status_start).content());
  flush();
}

void EventFile::write_event(std::int64_t step, int field, std::string_view value) {
  Message const event = Message().number(event::wall_time, now()).integer(event::step, step).bytes(field, value);
  std::string length;
  append_little_endian(length, static_cast<std::uint64_t>(event.content().size()));
  std::string record = length;
  append_little_endian(record, masked_crc(length));
  record += event.content();
  append_little_endian(record, masked_crc(event.content()));
  *file_ << record;
}

void EventFile::write_summary(std::int64_t step, std::string_view value) {
  write_event(step, event::summary, Message().bytes(value::summary, value).content());
}

void EventFile::scalar(std::int64_t step, std::string_view tag, double number) {
  write_summary(step,
                Message().bytes(value::tag, tag).number(value::simple_value, static_cast<float>(number)).content());
}

void EventFile::histogram(std::int64_t step, std::string_view tag, std::span<double const> values) {
  std::vector<double> finite(values.begin(), values.end());
  std::erase_if(finite, [](double each) { return !std::isfinite(each); });
  if (finite.empty()) {
    return;
  }
  std::ranges::sort(finite);
  double const width = (finite.back() - finite.front()) / static_cast<double>(max_buckets);
  std::size_t const buckets = width > 0 ? max_buckets : 1;
  std::vector<double> limits;
  std::vector<double> counts;
  auto next = finite.begin();
  for (std::size_t bucket = 1; bucket <= buckets; ++bucket) {
    limits.push_back(bucket == buckets ? finite.back() : finite.front() + width * static_cast<double>(bucket));
    auto const end = std::upper_bound(next, finite.end(), limits.back());
    counts.push_back(static_cast<double>(end - next));
    next = end;
  }
  double const squares = std::inner_product(finite.begin(), finite.end(), finite.begin(), 0.0);
  Message const content = Message()
                              .number(histogram::min, finite.front())
                              .number(histogram::max, finite.back())
                              .number(histogram::count, static_cast<double>(finite.size()))
                              .number(histogram::sum, std::accumulate(finite.begin(), finite.end(), 0.0))
                              .number(histogram::sum_of_squares, squares)
                              .numbers(histogram::bucket_limits, limits)
                              .numbers(histogram::buckets, counts);
  write_summary(step, Message().bytes(value::tag, tag).bytes(value::histogram, content.content()).content());
}

void EventFile::text(std::int64_t step, std::string_view tag, std::string_view words) {
  Message const one = Message().integer(tensor::size, 1);
  Message const shape = Message().bytes(tensor::dimension, one.content());
  Message const content = Message()
                              .integer(tensor::dtype, tensor::dtype_string)
                              .bytes(tensor::shape, shape.content())
                              .bytes(tensor::string_value, words);
  Message const plugin = Message().bytes(value::plugin_name, "text");
  Message const metadata = Message().bytes(value::plugin_data, plugin.content());
  write_summary(step, Message()
                          .bytes(value::tag, tag)
                          .bytes(value::tensor, content.content())
                          .bytes(value::metadata, metadata.content())
                          .content());
}

void EventFile::image(std::int64_t step, std::string_view tag, GreyImage const& picture) {
  Message const content = Message()
                              .integer(image::height, picture.height)
                              .integer(image::width, picture.width)
                              .integer(image::colorspace, image::grey)
                              .bytes(image::encoded, to_png(picture));
  write_summary(step, Message().bytes(value::tag, tag).bytes(value::image, content.content()).content());
}

void EventFile::flush() {
  *file_ << std::flush;
  if (!*file_) {
    throw Error("{} cannot be written (is the disk full?)", path_.string());
  }
}

}  // namespace heddle
