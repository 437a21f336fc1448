#include "direct_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <new>
#include <utility>

namespace heddle {

namespace {

constexpr std::int64_t writeback_bytes = std::int64_t{8} << 20;

/// Whether transfers between the disk and the process's own memory are on afterwards. A flag of open() that is refused
/// would leave an empty file.
bool set_direct(FileDescriptor const& file, bool direct) {
  int const flags = ::fcntl(file.get(), F_GETFL);
  return flags >= 0 && ::fcntl(file.get(), F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0 && direct;
}

}  // namespace

DirectBuffer::DirectBuffer()
    : memory_(static_cast<std::uint8_t*>(::operator new (bytes, std::align_val_t{alignment}))) {}

void DirectBuffer::Free::operator()(std::uint8_t* memory) const {
  ::operator delete (memory, std::align_val_t{alignment});
}

DirectFile::DirectFile(std::filesystem::path path)
    : path_(std::move(path)), file_(create_new(path_)), direct_(set_direct(file_, true)) {}

void DirectFile::append(std::span<std::uint8_t const> bytes) {
  while (!bytes.empty()) {
    std::span<std::uint8_t> const room = buffer_.all().subspan(filled_);
    std::size_t const count = std::min(room.size(), bytes.size());
    std::memcpy(room.data(), bytes.data(), count);
    filled_ += count;
    bytes = bytes.subspan(count);
    if (filled_ == DirectBuffer::bytes) {
      write_buffer();
    }
  }
}

void DirectFile::write_buffer() {
  std::span<std::uint8_t const> bytes = buffer_.all().first(filled_);
  filled_ = 0;
  while (!bytes.empty()) {
    direct_ = direct_ && (bytes.size() % DirectBuffer::alignment == 0 || set_direct(file_, false));
    ssize_t const done = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(written_));
    if (done < 0 && errno == EINVAL && direct_) {
      direct_ = set_direct(file_, false);
    } else if (done == 0 || (done < 0 && errno != EINTR)) {
      errno = done == 0 ? ENOSPC : errno;
      throw Error(path_.string() + ": could not be written: " + std::strerror(errno));
    } else if (done > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(done));
      written_ += done;
    }
  }
  if (!direct_ && written_ - writeback_ >= writeback_bytes) {
    // Only a hint, so that little is left for the fsync: that is what counts, and reports errors.
    ::sync_file_range(file_.get(), writeback_, written_ - writeback_, SYNC_FILE_RANGE_WRITE);
    writeback_ = written_;
  }
}

void DirectFile::finish(bool durable) {
  write_buffer();
  if (durable && ::fsync(file_.get()) != 0) {
    fail_with_errno(path_, "write to the disk");
  }
}

void read_from_disk(std::filesystem::path const& path, std::function<void(std::span<std::uint8_t const>)> const& take) {
  FileDescriptor const file = open_regular(path);
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);  // counts where the next line has no effect
  bool direct = set_direct(file, true);
  DirectBuffer const buffer;
  std::uintmax_t const size = std::filesystem::file_size(path);
  std::uintmax_t offset = 0;
  while (offset < size) {
    ssize_t const got = read_some(file, path, static_cast<std::int64_t>(offset), buffer.all());
    if (got < 0 && errno == EINVAL && direct) {
      direct = set_direct(file, false);
      continue;
    }
    if (got < 0) {
      throw DataError(path.string() + ": cannot be read: " + std::strerror(errno));
    }
    if (got == 0) {
      return;
    }
    take(buffer.all().first(static_cast<std::size_t>(got)));
    offset += static_cast<std::uintmax_t>(got);
  }
}

}  // namespace heddle
