#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <heddle/io/files/regular_file.hpp>
#include <span>
#include <string_view>
#include <utility>

namespace heddle {

/// Owns a POSIX file descriptor. Opening does not throw: check is_open() and errno.
class FileDescriptor {
 public:
  FileDescriptor(std::filesystem::path const& path, int flags);
  FileDescriptor(FileDescriptor const&) = delete;
  FileDescriptor& operator=(FileDescriptor const&) = delete;
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor();

  bool is_open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  /// Gives up the descriptor, which the caller then closes.
  int release() { return std::exchange(descriptor_, -1); }
  /// False if the system reports an error, perhaps of an earlier write.
  bool close();

 private:
  int descriptor_;
};

/// Opens a regular file, for reading or with these flags of open(). Symbolic links are not followed: anyone who can
/// write to the directory could otherwise choose a file elsewhere that is overwritten; and a FIFO is not waited for.
/// Throws DataError for both and where it cannot be opened for reading, Error where it cannot be opened for writing.
FileDescriptor open_regular(std::filesystem::path const& path, int flags = O_RDONLY);

/// Creates a file and opens it for writing. Throws Error if it exists or cannot be made.
FileDescriptor create_new(std::filesystem::path const& path);

/// An Error "PATH: could not WHAT: errno's text".
[[noreturn]] void fail_with_errno(std::filesystem::path const& path, std::string_view what);

/// Writes a new file with this content. Throws Error if it exists or cannot be written whole.
void write_new_file(std::filesystem::path const& path, std::string_view content);

/// Calls pread(), again where a signal interrupts it and, a few times within three seconds, where the device or a
/// server fails (EIO, ETIMEDOUT). Reads that failed and then succeeded are noted as trouble of `path`: the 1st, 2nd,
/// 4th, 8th …
ssize_t read_some(FileDescriptor const& file, std::filesystem::path const& path, std::int64_t offset,
                  std::span<std::uint8_t> bytes);
/// Reads bytes from `offset` on as read_some does, fewer only at the end of the file, and returns their number. Throws
/// DataError, which names `path`, if that fails.
std::size_t read_at(FileDescriptor const& file, std::filesystem::path const& path, std::int64_t offset,
                    std::span<std::uint8_t> bytes);

/// Writes all bytes at `offset`. Throws Error, which names `path`, if that fails.
void write_at(FileDescriptor const& file, std::filesystem::path const& path, std::int64_t offset,
              std::span<std::uint8_t const> bytes);

/// The free bytes of a file system, as it says; quotas show only when writing. The maximum where it does not say.
std::int64_t free_bytes_at(std::filesystem::path const& directory);

/// The bytes of all files in a directory and below it, as far as they can be read.
std::int64_t bytes_below(std::filesystem::path const& directory);

/// Renames a file or a directory unless `to` exists. Returns true if it did. Throws Error on any other failure.
bool rename_without_replacing(std::filesystem::path const& from, std::filesystem::path const& to);

/// Gives two files or directories each other's name at once. Returns false if the file system cannot. Throws Error on
/// any other failure.
bool exchange_names(std::filesystem::path const& one, std::filesystem::path const& other);

}  // namespace heddle
