#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <heddle/io/files/file_lock.hpp>
#include <utility>

#include "file_descriptor.hpp"

namespace heddle {

namespace {

int operation_of(FileLock::Kind kind) {
  return kind == FileLock::Kind::shared ? LOCK_SH : LOCK_EX;
}

}  // namespace

FileLock::FileLock(std::filesystem::path path)
    : path_(std::move(path)), file_(std::make_unique<FileDescriptor>(open_regular(path_, O_RDWR | O_CREAT))) {}

FileLock::~FileLock() = default;
FileLock::FileLock(FileLock&&) noexcept = default;

FileLock::Result FileLock::try_take(Kind kind) {
  return lock(operation_of(kind) | LOCK_NB);
}

FileLock::Result FileLock::take(Kind kind) {
  return lock(operation_of(kind));
}

bool FileLock::in_place() const {
  struct stat opened {};
  struct stat named {};
  if (::lstat(path_.c_str(), &named) != 0) {
    return errno != ENOENT && errno != ENOTDIR;  // a server that does not answer has removed nothing
  }
  return ::fstat(file_->get(), &opened) != 0 || (opened.st_dev == named.st_dev && opened.st_ino == named.st_ino);
}

void FileLock::describe(std::string_view text) {
  if (::ftruncate(file_->get(), 0) != 0 ||
      ::pwrite(file_->get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    fail_with_errno(path_, "write the file");
  }
}

std::string FileLock::description() const {
  std::string text(4096, '\0');
  ssize_t const bytes = ::pread(file_->get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(bytes > 0 ? bytes : 0));
  return text;
}

FileLock::Result FileLock::lock(int operation) {
  while (::flock(file_->get(), operation) != 0) {
    if (errno == EWOULDBLOCK) {
      return Result::busy;
    }
    // ENOLCK: a network file system that cannot reach a lock server.
    if (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK) {
      return Result::not_supported;
    }
    if (errno != EINTR) {
      fail_with_errno(path_, "lock the file");
    }
  }
  return Result::taken;
}

}  // namespace heddle
