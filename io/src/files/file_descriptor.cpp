#include "file_descriptor.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/io/files/sha256.hpp>

namespace heddle {

FileDescriptor::FileDescriptor(std::filesystem::path const& path, int flags)
    : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}

FileDescriptor::~FileDescriptor() {
  close();
}

bool FileDescriptor::close() {
  return descriptor_ < 0 || ::close(std::exchange(descriptor_, -1)) == 0;
}

FileDescriptor create_new(std::filesystem::path const& path) {
  FileDescriptor file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (!file.is_open()) {
    fail_with_errno(path, "create the file");
  }
  return file;
}

FileDescriptor open_regular(std::filesystem::path const& path, int flags) {
  FileDescriptor file(path, flags | O_NOFOLLOW | O_NONBLOCK);
  struct stat status {};
  bool const writes = (flags & O_ACCMODE) != O_RDONLY;
  std::string const fix = writes ? "; move it away" : "";
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) {
    if (errno == ELOOP) {
      throw DataError(path.string() + ": is a symbolic link" + fix);
    }
    if (errno == ENXIO) {  // a FIFO without a reader, or a socket
      throw DataError(path.string() + ": is not a regular file" + fix);
    }
    if (writes) {
      fail_with_errno(path, "open the file");
    }
    throw DataError(open_problem(path, errno));
  }
  if (!S_ISREG(status.st_mode)) {
    throw DataError(path.string() + ": is not a regular file" + fix);
  }
  return file;
}

void fail_with_errno(std::filesystem::path const& path, std::string_view what) {
  throw Error(path.string() + ": could not " + std::string(what) + ": " + std::strerror(errno));
}

void sync_to_disk(std::filesystem::path const& path) {
  FileDescriptor const file(path, O_RDONLY | O_NONBLOCK);
  // Some network file systems return EINVAL for a directory: their renames need no fsync.
  if (!file.is_open() || (::fsync(file.get()) != 0 && !(errno == EINVAL && std::filesystem::is_directory(path)))) {
    fail_with_errno(path, "write to the disk");
  }
}

void write_new_file(std::filesystem::path const& path, std::string_view content) {
  write_at(create_new(path), path, 0, text_bytes(content));
}

std::size_t read_at(FileDescriptor const& file, std::filesystem::path const& path, std::int64_t offset,
                    std::span<std::uint8_t> bytes) {
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    ssize_t const got = ::pread(file.get(), bytes.data() + filled, bytes.size() - filled,
                                static_cast<off_t>(offset + static_cast<std::int64_t>(filled)));
    if (got == 0) {
      break;
    }
    if (got < 0 && errno != EINTR) {
      throw DataError(path.string() + ": cannot be read: " + std::strerror(errno));
    }
    filled += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  }
  return filled;
}

void write_at(FileDescriptor const& file, std::filesystem::path const& path, std::int64_t offset,
              std::span<std::uint8_t const> bytes) {
  while (!bytes.empty()) {
    ssize_t const done = ::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      errno = done == 0 ? ENOSPC : errno;
      throw Error(path.string() + ": could not be written: " + std::strerror(errno));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += done;
  }
}

std::int64_t bytes_below(std::filesystem::path const& directory) {
  std::int64_t bytes = 0;
  std::error_code ignored;
  auto const options = std::filesystem::directory_options::skip_permission_denied;
  std::filesystem::recursive_directory_iterator entry(directory, options, ignored);
  for (; entry != std::filesystem::recursive_directory_iterator(); entry.increment(ignored)) {
    if (entry->is_regular_file(ignored)) {
      bytes += static_cast<std::int64_t>(entry->file_size(ignored));
    }
  }
  return bytes;
}

bool rename_without_replacing(std::filesystem::path const& from, std::filesystem::path const& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return true;
  }
  if (errno == EINVAL || errno == ENOSYS) {  // a file system without this flag
    if (::link(from.c_str(), to.c_str()) == 0) {
      return ::unlink(from.c_str()) == 0;
    }
    // Not a file, or one without hard links. Plain rename is nearly as good: it replaces a directory only if empty.
    bool const taken = errno == EEXIST || std::filesystem::is_regular_file(std::filesystem::symlink_status(to));
    if (!taken && ::rename(from.c_str(), to.c_str()) == 0) {
      return true;
    }
    errno = taken ? EEXIST : errno;
  }
  if (errno == EEXIST || errno == ENOTEMPTY) {
    return false;
  }
  fail_with_errno(from, "rename to " + to.string());
}

bool exchange_names(std::filesystem::path const& one, std::filesystem::path const& other) {
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  if (errno == EINVAL || errno == ENOSYS) {
    return false;
  }
  fail_with_errno(one, "exchange with " + other.string());
}

}  // namespace heddle
