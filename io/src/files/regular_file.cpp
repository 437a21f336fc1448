#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/files/sha256.hpp>
#include <ostream>
#include <streambuf>
#include <utility>

#include "file_descriptor.hpp"

namespace heddle {

namespace {

/// Writes to a file descriptor, as std::filebuf does to a name: no standard stream opens a file without following
/// links.
class DescriptorBuffer final : public std::streambuf {
 public:
  explicit DescriptorBuffer(FileDescriptor file) : file_(std::move(file)) { restart(); }
  ~DescriptorBuffer() override { DescriptorBuffer::sync(); }
  DescriptorBuffer(DescriptorBuffer const&) = delete;
  DescriptorBuffer& operator=(DescriptorBuffer const&) = delete;

 protected:
  int_type overflow(int_type next) override {
    if (sync() != 0) {
      return traits_type::eof();
    }
    return traits_type::eq_int_type(next, traits_type::eof()) ? traits_type::not_eof(next)
                                                              : sputc(traits_type::to_char_type(next));
  }

  /// Characters that cannot be written are dropped, as the stream is bad from then on.
  int sync() override {
    char const* from = pbase();
    while (from != pptr()) {
      ssize_t const written = ::write(file_.get(), from, static_cast<std::size_t>(pptr() - from));
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written <= 0) {
        restart();
        return -1;
      }
      from += written;
    }
    restart();
    return 0;
  }

 private:
  void restart() { setp(buffer_.data(), buffer_.data() + buffer_.size()); }

  FileDescriptor file_;
  std::array<char, 16384> buffer_{};
};

class OutputFile final : public std::ostream {
 public:
  explicit OutputFile(FileDescriptor file) : std::ostream(nullptr), buffer_(std::move(file)) { rdbuf(&buffer_); }

 private:
  DescriptorBuffer buffer_;
};

}  // namespace

std::unique_ptr<std::ostream> open_output(std::filesystem::path const& path, OutputMode mode) {
  int const flags = O_WRONLY | O_CREAT | (mode == OutputMode::append ? O_APPEND : O_EXCL);
  return std::make_unique<OutputFile>(open_regular(path, flags));
}

std::optional<std::string> read_regular(std::filesystem::path const& path, std::int64_t max_bytes) {
  std::error_code problem;
  if (std::filesystem::symlink_status(path, problem).type() == std::filesystem::file_type::not_found) {
    return std::nullopt;
  }
  FileDescriptor const file = open_regular(path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    throw DataError(path.string() + ": cannot be read: " + std::strerror(errno));
  }
  std::int64_t const bytes = std::min<std::int64_t>(status.st_size, max_bytes);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  text.resize(read_at(file, path, status.st_size - bytes, text_bytes(text)));
  return text;
}

}  // namespace heddle
