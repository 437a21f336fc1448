#pragma once

#include <zlib.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "files/file_descriptor.hpp"

namespace heddle {

/// The bytes of a text, plain or gzip (recognised by the first bytes; members that follow each other are one text, and
/// what follows the last one is ignored, as gzip does). Each read returns as soon as there are bytes: a line that comes
/// through a pipe or from a terminal is not kept back until more follow.
class TextBytes {
 public:
  /// Throws DataError where the file cannot be opened.
  explicit TextBytes(std::filesystem::path const& path);
  TextBytes(TextBytes const&) = delete;
  TextBytes& operator=(TextBytes const&) = delete;
  ~TextBytes() = default;

  /// The next bytes, at least one and at most as many as `into` has room for; 0 at the end, again and again. Throws
  /// DataError, without the file's name, for a failed read and for gzip data that are damaged or cut off, once the
  /// bytes before are read.
  std::size_t read(std::span<char> into);

  bool is_terminal() const;
  /// Bytes of the file that were read, compressed ones for gzip.
  std::int64_t position() const { return position_; }

 private:
  enum class Kind : std::uint8_t { unknown, plain, gzip };
  struct EndInflate {
    void operator()(z_stream* stream) const noexcept;
  };

  std::size_t read_file(std::span<unsigned char> into);
  bool fill();
  std::size_t available() const { return end_ - begin_; }
  bool starts_gzip();
  void start_gzip();
  std::size_t inflate_into(std::span<char> into);

  FileDescriptor file_;
  Kind kind_ = Kind::unknown;
  std::array<unsigned char, 1 << 16> input_{};  ///< of which [begin_, end_) are not used yet
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::int64_t position_ = 0;
  bool ended_ = false;
  std::unique_ptr<z_stream, EndInflate> stream_;
  bool in_member_ = false;
  bool more_inside_ = false;  ///< the stream may hold bytes that had no room in the last read
  std::string failure_;
};

}  // namespace heddle
