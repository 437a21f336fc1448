#include "npz_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <limits>

namespace heddle {

namespace {

constexpr std::string_view local_signature = "PK\3\4";
constexpr std::string_view directory_signature = "PK\1\2";
constexpr std::string_view end_signature = "PK\5\6";
constexpr std::size_t directory_record_bytes = 46;
constexpr std::size_t end_record_bytes = 22;
constexpr std::size_t max_array_dimensions = 8;
constexpr std::int64_t max_inflated_bytes = std::int64_t{1} << 30;
constexpr std::int64_t small_file_bytes = std::int64_t{1} << 24;

/// An integer of `bytes` bytes, the lowest first.
std::int64_t integer_at(std::string_view text, std::size_t offset, std::size_t bytes) {
  std::int64_t value = 0;
  for (std::size_t index = bytes; index > 0; --index) {
    value = value << 8 | static_cast<unsigned char>(text.at(offset + index - 1));
  }
  return value;
}

void append(std::string& text, std::int64_t value, int bytes) {
  for (; bytes > 0; --bytes, value >>= 8) {
    text.push_back(static_cast<char>(value & 0xff));
  }
}

/// The fields that the local header and the directory have in common.
std::string common_fields(ZipRecord const& record) {
  std::string fields;
  append(fields, 20, 2);  // the version that is needed
  append(fields, 0, 2);   // flags
  append(fields, record.deflated ? 8 : 0, 2);
  append(fields, 0, 2);             // time
  append(fields, (1 << 5) + 1, 2);  // the first of January 1980: the same bytes for the same model
  append(fields, record.checksum, 4);
  append(fields, record.stored_bytes, 4);
  append(fields, record.bytes, 4);
  append(fields, std::ssize(record.name), 2);
  append(fields, 0, 2);  // extra fields
  return fields;
}

/// The text between two others in a header of NumPy, without the blanks around it.
std::string_view between(std::string_view text, std::string_view begin, std::string_view end) {
  std::size_t const from = text.find(begin);
  std::size_t const to = from == text.npos ? from : text.find(end, from + begin.size());
  return to == text.npos ? std::string_view() : text.substr(from + begin.size(), to - from - begin.size());
}

std::int64_t bytes_of_type(std::string_view type) {
  bool const known = type.size() == 3 && std::string_view("<|").find(type[0]) != type.npos &&
                     std::string_view("fiub").find(type[1]) != type.npos &&
                     std::string_view("1248").find(type[2]) != type.npos;
  return known ? type[2] - '0' : 0;
}

}  // namespace

ZipDirectory find_zip_directory(std::string_view end, std::int64_t file_bytes, std::string const& where) {
  for (std::size_t at = end.rfind(end_signature); at != end.npos && end.size() >= end_record_bytes;
       at = at == 0 ? end.npos : end.rfind(end_signature, at - 1)) {
    if (at + end_record_bytes > end.size() ||
        at + end_record_bytes + static_cast<std::size_t>(integer_at(end, at + 20, 2)) != end.size()) {
      continue;
    }
    ZipDirectory const place{integer_at(end, at + 16, 4), integer_at(end, at + 12, 4), integer_at(end, at + 10, 2)};
    std::int64_t const record = file_bytes - std::ssize(end) + static_cast<std::int64_t>(at);
    if (integer_at(end, at + 4, 4) != 0 || integer_at(end, at + 8, 2) != place.count ||
        place.begin + place.bytes != record) {
      throw DataError(where + ": is not one whole zip archive; those of 4 GiB and more cannot be read");
    }
    return place;
  }
  throw DataError(where + ": is not a .npz file: it has no end of a zip archive");
}

std::vector<ZipRecord> parse_zip_directory(std::string_view text, std::int64_t count, std::string const& where) {
  std::vector<ZipRecord> records;
  for (; count > 0; --count) {
    if (text.size() < directory_record_bytes || !text.starts_with(directory_signature)) {
      throw DataError(where + ": its directory ends within a record");
    }
    auto const name_bytes = static_cast<std::size_t>(integer_at(text, 28, 2));
    auto const all = directory_record_bytes + name_bytes +
                     static_cast<std::size_t>(integer_at(text, 30, 2) + integer_at(text, 32, 2));
    std::int64_t const method = integer_at(text, 10, 2);
    if (all > text.size()) {
      throw DataError(where + ": its directory ends within a record");
    }
    records.push_back({std::string(text.substr(directory_record_bytes, name_bytes)), method == 8,
                       static_cast<std::uint32_t>(integer_at(text, 16, 4)), integer_at(text, 20, 4),
                       integer_at(text, 24, 4), integer_at(text, 42, 4)});
    ZipRecord const& record = records.back();
    bool const encrypted = (integer_at(text, 8, 2) & 1) != 0;
    // Deflate makes at most 1032 bytes of one, and hardly shortens numbers of a trained model.
    bool const bomb = record.bytes > std::max(100 * record.stored_bytes, small_file_bytes) ||
                      record.bytes > 1032 * record.stored_bytes + 64;
    if (encrypted || (method != 0 && method != 8) || (method == 0 && record.stored_bytes != record.bytes) || bomb ||
        (method == 8 && record.bytes > max_inflated_bytes) || std::max(record.bytes, record.offset) == 0xffffffff) {
      throw DataError(
          "{}: its file {} is not one that NumPy writes of a model: it is encrypted, has another compression "
          "than deflate, or lengths that cannot be; arrays of 1 GiB must be stored (numpy.savez)",
          where, json_quoted(record.name));
    }
    text.remove_prefix(all);
  }
  if (!text.empty()) {
    throw DataError(where + ": trailing bytes after the last record of its directory");
  }
  return records;
}

std::int64_t zip_local_header_bytes(std::string_view header, ZipRecord const& record, std::string const& where) {
  auto const fixed = static_cast<std::size_t>(zip_local_bytes);
  if (header.size() < fixed + record.name.size() || !header.starts_with(local_signature) ||
      integer_at(header, 26, 2) != std::ssize(record.name) || header.substr(fixed, record.name.size()) != record.name ||
      integer_at(header, 8, 2) != (record.deflated ? 8 : 0)) {
    throw DataError("{}: its file {} does not begin where its directory says", where, json_quoted(record.name));
  }
  return zip_local_bytes + std::ssize(record.name) + integer_at(header, 28, 2);
}

std::string zip_local_header(ZipRecord const& record) {
  return std::string(local_signature) + common_fields(record) + record.name;
}

std::string zip_directory_record(ZipRecord const& record) {
  std::string text(directory_signature);
  append(text, 20, 2);
  text += common_fields(record);
  append(text, 0, 10);  // comment, disk, attributes
  append(text, record.offset, 4);
  return text + record.name;
}

std::string zip_end(ZipDirectory const& place) {
  std::string text(end_signature);
  append(text, 0, 4);
  append(text, place.count, 2);
  append(text, place.count, 2);
  append(text, place.bytes, 4);
  append(text, place.begin, 4);
  append(text, 0, 2);
  return text;
}

NpyHeader parse_npy_header(std::string_view text, std::int64_t file_bytes, std::string const& where) {
  if (text.size() < 12 || !text.starts_with("\x93NUMPY") || text[6] < 1 || text[6] > 3) {
    throw DataError(where + " is not a .npy file");
  }
  std::size_t const length_bytes = text[6] == 1 ? 2 : 4;
  std::int64_t const length = integer_at(text, 8, length_bytes);
  NpyHeader header;
  header.bytes = 8 + static_cast<std::int64_t>(length_bytes) + length;
  if (header.bytes > std::ssize(text)) {
    throw DataError(where + " has a header that is truncated or longer than an array needs");
  }
  std::string_view const dictionary = text.substr(8 + length_bytes, static_cast<std::size_t>(length));
  std::string const type(between(dictionary, "'descr': '", "'"));
  std::int64_t elements = bytes_of_type(type);
  std::string_view shape = between(dictionary, "'shape': (", ")");
  bool good = elements > 0 && dictionary.find("'shape': (") != dictionary.npos &&
              between(dictionary, "'fortran_order': ", ",") == "False";
  while (good && !shape.empty()) {
    std::int64_t size = 0;
    auto const [rest, error] = std::from_chars(shape.data(), shape.data() + shape.size(), size);
    shape.remove_prefix(static_cast<std::size_t>(rest - shape.data()));
    shape.remove_prefix(std::min(shape.size(), shape.find_first_not_of(", ")));
    good = error == std::errc() && size >= 0 && header.tensor.shape.size() < max_array_dimensions &&
           (size == 0 || elements <= std::numeric_limits<std::int64_t>::max() / size);
    header.tensor.shape.push_back(size);
    elements *= good ? size : 0;
  }
  if (!good || header.bytes + elements != file_bytes) {
    throw DataError("{} is not an array of numbers in C's order that fills its file: {}", where,
                    json_quoted(dictionary.substr(0, 200)));
  }
  header.tensor.dtype = type == "<f4" ? "float32" : type;
  return header;
}

std::string npy_header(std::string_view type, std::vector<std::int64_t> const& shape) {
  std::string sizes;
  for (std::int64_t const size : shape) {
    sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
  }
  std::string dictionary = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", type, sizes,
                                       shape.size() == 1 ? "," : "");
  dictionary.resize((10 + dictionary.size() + 1 + 63) / 64 * 64 - 11, ' ');  // NumPy aligns elements to 64 bytes
  std::string text("\x93NUMPY\1\0", 8);
  append(text, std::ssize(dictionary) + 1, 2);
  return text + dictionary + "\n";
}

}  // namespace heddle
