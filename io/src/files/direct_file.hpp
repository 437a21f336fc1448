#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "file_descriptor.hpp"

namespace heddle {

/// Memory at an address that O_DIRECT accepts.
class DirectBuffer {
 public:
  static constexpr std::size_t alignment = 4096;
  static constexpr std::size_t bytes = std::size_t{4} << 20;

  DirectBuffer();
  std::span<std::uint8_t> all() const { return {memory_.get(), bytes}; }

 private:
  struct Free {
    void operator()(std::uint8_t* memory) const;
  };
  std::unique_ptr<std::uint8_t, Free> memory_;
};

/// A new file that is written sequentially, past the page cache where the file system can (O_DIRECT): the
/// way through the cache took several times as much of the processor, which training needs meanwhile.
class DirectFile {
 public:
  /// Throws Error if the file exists or cannot be made.
  explicit DirectFile(std::filesystem::path path);

  /// Throws Error if the bytes cannot be written, now or when there are enough of them.
  void append(std::span<std::uint8_t const> bytes);
  /// Writes what is left and, if `durable`, waits until the file is on the disk. A failed fsync is an error for good:
  /// the kernel may have dropped the pages that it could not write, so that a second fsync would succeed without them.
  void finish(bool durable);

 private:
  void write_buffer();

  std::filesystem::path path_;
  FileDescriptor file_;
  bool direct_ = false;
  DirectBuffer buffer_;
  std::size_t filled_ = 0;
  std::int64_t written_ = 0;
  std::int64_t writeback_ = 0;  ///< up to here the kernel was asked to write to the disk
};

/// Reads a regular file (symbolic links are refused) from the disk, not from the page cache, where the file system can,
/// and passes consecutive pieces on. Throws DataError if it cannot be read.
void read_from_disk(std::filesystem::path const& path, std::function<void(std::span<std::uint8_t const>)> const& take);

}  // namespace heddle
