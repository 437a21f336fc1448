#include "file_descriptor.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/io/files/file_troubles.hpp>
#include <heddle/io/files/sha256.hpp>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

namespace heddle {

namespace {

/// Counts reads that were tried again, and notes some: a bad disk must not fill the log.
void count_failed_reads(std::filesystem::path const& path, std::size_t failures, int error) {
  static std::mutex mutex;
  static std::map<std::string, std::size_t> counts;
  std::lock_guard const lock(mutex);
  std::size_t& count = counts[path.string()];
  bool const noted = std::bit_width(count) < std::bit_width(count + failures);
  count += failures;
  if (noted) {
    note_file_trouble(path.string(),
                      fmt::format("{} so far failed ({}) and succeeded when tried again",
                                  count == 1 ? "1 read" : fmt::format("{} reads", count), std::strerror(error)));
  }
}

}  // namespace

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

ssize_t read_some(FileDescriptor const& file, std::filesystem::path const& path, std::int64_t offset,
                  std::span<std::uint8_t> bytes) {
  using std::chrono_literals::operator""ms;
  constexpr std::array pauses{20ms, 100ms, 500ms, 2500ms};
  std::size_t failures = 0;
  int error = 0;
  while (true) {
    ssize_t const got = ::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got >= 0) {
      if (failures > 0) {
        count_failed_reads(path, failures, error);
      }
      return got;
    }
    if (errno == EINTR) {
      continue;
    }
    if ((errno != EIO && errno != ETIMEDOUT) || failures == pauses.size()) {
      return got;
    }
    error = errno;
    std::this_thread::sleep_for(pauses[failures++]);
  }
}

std::size_t read_at(FileDescriptor const& file, std::filesystem::path const& path, std::int64_t offset,
                    std::span<std::uint8_t> bytes) {
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    ssize_t const got = read_some(file, path, offset + static_cast<std::int64_t>(filled), bytes.subspan(filled));
    if (got == 0) {
      break;
    }
    if (got < 0) {
      throw DataError(path.string() + ": cannot be read: " + std::strerror(errno));
    }
    filled += static_cast<std::size_t>(got);
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

std::int64_t free_bytes_at(std::filesystem::path const& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return static_cast<std::int64_t>(std::uint64_t{status.f_bavail} * status.f_frsize);
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
