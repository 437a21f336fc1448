#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ext/stdio_filebuf.h>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/files/sha256.hpp>
#include <istream>
#include <ostream>
#include <utility>

#include "file_descriptor.hpp"

namespace heddle {

namespace {

/// A stream of an opened file. No stream of the C++ standard opens a file without following links; this buffer of
/// libstdc++ takes over a descriptor.
template <class Stream, std::ios::openmode mode>
class FileStream final : public Stream {
 public:
  explicit FileStream(FileDescriptor file) : Stream(nullptr), buffer_(file.release(), mode, buffer_bytes) {
    this->rdbuf(&buffer_);
  }

 private:
  static constexpr std::size_t buffer_bytes = 16384;
  __gnu_cxx::stdio_filebuf<char> buffer_;
};

using InputFile = FileStream<std::istream, std::ios::in>;
using OutputFile = FileStream<std::ostream, std::ios::out>;

/// Neither waits for a reader of a FIFO, as open() does, nor writes as O_NONBLOCK does.
FileDescriptor open_stream(std::filesystem::path const& path) {
  FileDescriptor file(path, O_WRONLY | O_NONBLOCK);
  if (!file.is_open() && errno == ENXIO) {
    throw DataError(path.string() +
                    ": is a FIFO without a reader, or a socket; start the reader first, or name a file");
  }
  if (!file.is_open() || ::fcntl(file.get(), F_SETFL, O_WRONLY) != 0) {
    fail_with_errno(path, "open the file");
  }
  return file;
}

}  // namespace

std::unique_ptr<std::ostream> open_output(std::filesystem::path const& path, OutputMode mode) {
  if (mode == OutputMode::stream) {
    return std::make_unique<OutputFile>(open_stream(path));
  }
  int const flags = O_WRONLY | O_CREAT | (mode == OutputMode::append ? O_APPEND : O_EXCL);
  return std::make_unique<OutputFile>(open_regular(path, flags));
}

std::unique_ptr<std::ostream> open_output_after(std::filesystem::path const& path, std::int64_t bytes) {
  FileDescriptor file = open_regular(path, O_WRONLY | O_CREAT | O_APPEND);
  if (::ftruncate(file.get(), bytes) != 0) {
    fail_with_errno(path, "shorten the file");
  }
  return std::make_unique<OutputFile>(std::move(file));
}

std::unique_ptr<std::istream> open_input(std::filesystem::path const& path) {
  return std::make_unique<InputFile>(open_regular(path));
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
