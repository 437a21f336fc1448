#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <heddle/io/text/text_writer.hpp>
#include <memory>
#include <span>
#include <string>

#include "files/file_descriptor.hpp"

namespace heddle {

/// Whether a file with these first bytes, at least four unless it is shorter, is gzip or zstd.
bool is_compressed(std::span<std::uint8_t const> begin);

/// Decompresses the members of a gzip file, or the frames of a zstd file.
class Decompressor {
 public:
  struct Progress {
    std::size_t read = 0, written = 0;
    bool ended = false;        ///< of the member
    std::string failure = {};  ///< what is wrong with the bytes; "": nothing
  };

  virtual ~Decompressor() = default;
  virtual void start_member() = 0;
  /// Decompresses as much as there are bytes and room for.
  virtual Progress decompress(std::span<unsigned char const> from, std::span<char> into) = 0;
};

/// The bytes of a text, plain, gzip or zstd (recognised by the first bytes; members that follow each other are one
/// text, also with zeros after them). Each read returns as soon as there are bytes: a line that comes through a pipe or
/// from a terminal is not kept back until more follow.
class TextBytes {
 public:
  /// Throws DataError where the file cannot be opened.
  explicit TextBytes(std::filesystem::path const& path);
  TextBytes(TextBytes const&) = delete;
  TextBytes& operator=(TextBytes const&) = delete;
  ~TextBytes() = default;

  /// The next bytes, at least one and at most as many as `into` has room for; 0 at the end, again and again. Throws
  /// DataError, without the file's name, for a failed read and for compressed data that are damaged or truncated or
  /// have something else after a member, once the bytes before are read; of zstd's, up to a block before damage is not.
  std::size_t read(std::span<char> into);

  /// Ends a wait for bytes in another thread: `read` throws Error, there and from now on.
  void interrupt() { interrupted_ = true; }

  bool is_terminal() const;
  /// Bytes of the file that were read, compressed ones for a compressed file.
  std::int64_t position() const { return position_; }

 private:
  std::size_t read_file(std::span<unsigned char> into);
  bool fill();
  std::size_t available() const { return end_ - begin_; }
  std::span<unsigned char const> unused() const { return std::span(input_).subspan(begin_, available()); }
  Compression next_kind();
  bool next_member();
  std::int64_t used() const { return position_ - static_cast<std::int64_t>(available()); }
  std::size_t decompress_into(std::span<char> into);
  char const* name_of_kind() const { return kind_ == Compression::gzip ? "gzip" : "zstd"; }

  FileDescriptor file_;
  bool known_ = false;  ///< the kind of the file
  Compression kind_ = Compression::none;
  std::array<unsigned char, 1 << 16> input_{};  ///< the bytes [begin_, end_) are not used yet
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::int64_t position_ = 0;
  bool ended_ = false;
  std::atomic<bool> interrupted_ = false;
  std::unique_ptr<Decompressor> decompressor_;
  bool in_member_ = false;
  bool more_inside_ = false;  ///< the decompressor may hold bytes that had no room in the last read
  std::string failure_;
};

}  // namespace heddle
