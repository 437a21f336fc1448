#pragma once

#include <cstdint>
#include <heddle/io/formats/foreign_tensors.hpp>
#include <string>
#include <string_view>

/// The records of zip archives and of .npy files.
namespace heddle {

/// A file in an archive, as the archive's directory states it.
struct ZipRecord {
  std::string name;
  bool deflated = false;
  std::uint32_t checksum = 0;  ///< CRC-32
  std::int64_t stored_bytes = 0;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  ///< of its local header
};

/// The maximum size in bytes of the record at the end of an archive.
inline constexpr std::int64_t zip_end_bytes = 22 + 65535;
inline constexpr std::int64_t zip_local_bytes = 30;  ///< a local header without its name

/// The number of bytes of the directory and the byte in which it begins; `end` is the end of the file, which has
/// `file_bytes`. Throws DataError, which begins with `where`, if this is not an archive or one with Zip64.
struct ZipDirectory {
  std::int64_t begin, bytes, count;
};
ZipDirectory find_zip_directory(std::string_view end, std::int64_t file_bytes, std::string const& where);
/// Throws DataError, which begins with `where`, for records that are truncated or state what no .npz has.
std::vector<ZipRecord> parse_zip_directory(std::string_view text, std::int64_t count, std::string const& where);
/// The bytes of a local header with its name. Throws DataError unless it is the record's.
std::int64_t zip_local_header_bytes(std::string_view header, ZipRecord const& record, std::string const& where);

/// The local header, the record of the directory, and the end of an archive.
std::string zip_local_header(ZipRecord const& record);
std::string zip_directory_record(ZipRecord const& record);
std::string zip_end(ZipDirectory const& place);

/// The header of an array: its dtype, "float32" or NumPy's name, its shape, and the bytes before its elements.
struct NpyHeader {
  ForeignTensor tensor;
  std::int64_t bytes = 0;
};
/// The maximum length in bytes of a .npy header that is accepted.
inline constexpr std::int64_t max_npy_header_bytes = 4096;
/// Throws DataError, which begins with `where`, unless the array that it describes takes `file_bytes` with its header.
NpyHeader parse_npy_header(std::string_view text, std::int64_t file_bytes, std::string const& where);
std::string npy_header(std::string_view type, std::vector<std::int64_t> const& shape);

}  // namespace heddle
