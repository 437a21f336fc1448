#include "text_bytes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>

namespace heddle {

void TextBytes::EndInflate::operator()(z_stream* stream) const noexcept {
  inflateEnd(stream);
  delete stream;
}

TextBytes::TextBytes(std::filesystem::path const& path) : file_(path, O_RDONLY | O_NOCTTY) {
  if (!file_.is_open()) {
    int const problem = errno;
    throw DataError(fmt::format("{}: cannot open this text: {}{}", path.string(), std::strerror(problem),
                                problem == ENOENT ? relative_to(path) : ""));
  }
}

bool TextBytes::is_terminal() const {
  return ::isatty(file_.get()) == 1;
}

/// Waits for bytes and reads those that are there; 0 at the end of the file.
std::size_t TextBytes::read_file(std::span<unsigned char> into) {
  while (!ended_) {
    ssize_t const count = ::read(file_.get(), into.data(), into.size());
    if (count >= 0) {
      ended_ = count == 0;
      position_ += count;
      return static_cast<std::size_t>(count);
    }
    if (errno == EAGAIN) {  // a terminal that another program has set not to block
      pollfd ready{file_.get(), POLLIN, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      throw DataError(fmt::format("cannot read: {}", std::strerror(errno)));
    }
  }
  return 0;
}

/// Adds bytes of the file to those in input_, which must not be full; false at the end of the file.
bool TextBytes::fill() {
  std::copy(input_.begin() + static_cast<std::ptrdiff_t>(begin_), input_.begin() + static_cast<std::ptrdiff_t>(end_),
            input_.begin());
  end_ -= begin_;
  begin_ = 0;
  std::size_t const count = read_file(std::span(input_).subspan(end_));
  end_ += count;
  return count > 0;
}

/// Whether a member of a gzip file begins here. Waits for a second byte only where the first one is gzip's.
bool TextBytes::starts_gzip() {
  constexpr std::array<unsigned char, 2> magic{0x1F, 0x8B};
  if (available() == 0) {
    fill();
  }
  if (available() == 1 && input_[begin_] == magic[0]) {
    fill();
  }
  return available() >= 2 && input_[begin_] == magic[0] && input_[begin_ + 1] == magic[1];
}

void TextBytes::start_gzip() {
  if (stream_) {
    inflateReset(stream_.get());
  } else {
    auto stream = std::make_unique<z_stream>();
    constexpr int gzip_only = 16;
    if (inflateInit2(stream.get(), MAX_WBITS + gzip_only) != Z_OK) {
      throw Error("zlib cannot start to decompress");
    }
    stream_.reset(stream.release());
  }
  in_member_ = true;
  more_inside_ = false;
}

std::size_t TextBytes::read(std::span<char> into) {
  if (!failure_.empty()) {
    throw DataError(failure_);
  }
  if (kind_ == Kind::unknown) {
    kind_ = starts_gzip() ? Kind::gzip : Kind::plain;
  }
  if (kind_ == Kind::gzip) {
    return inflate_into(into);
  }
  if (available() == 0) {
    return read_file({reinterpret_cast<unsigned char*>(into.data()), into.size()});
  }
  std::size_t const count = std::min(available(), into.size());
  std::memcpy(into.data(), input_.data() + begin_, count);
  begin_ += count;
  return count;
}

std::size_t TextBytes::inflate_into(std::span<char> into) {
  while (true) {
    if (!in_member_) {
      if (!starts_gzip()) {
        ended_ = true;
        begin_ = end_;
        return 0;
      }
      start_gzip();
    }
    if (!more_inside_ && available() == 0 && !fill()) {
      throw DataError("damaged or cut-off gzip data (unexpected end of file)");
    }
    stream_->next_in = input_.data() + begin_;
    stream_->avail_in = static_cast<uInt>(available());
    stream_->next_out = reinterpret_cast<Bytef*>(into.data());
    stream_->avail_out = static_cast<uInt>(into.size());
    int const code = inflate(stream_.get(), Z_NO_FLUSH);
    begin_ = end_ - stream_->avail_in;
    std::size_t const count = into.size() - stream_->avail_out;
    more_inside_ = stream_->avail_out == 0;
    in_member_ = code != Z_STREAM_END;
    if (code != Z_STREAM_END && code != Z_OK && code != Z_BUF_ERROR) {
      failure_ = fmt::format("damaged or cut-off gzip data ({})", stream_->msg == nullptr ? "unknown" : stream_->msg);
      if (count == 0) {
        throw DataError(failure_);
      }
    }
    if (count > 0) {
      return count;
    }
  }
}

}  // namespace heddle
