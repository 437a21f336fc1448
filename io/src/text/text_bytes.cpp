#include "text/text_bytes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>
#define ZLIB_CONST  // zlib.h: what is read is const
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>

namespace heddle {
namespace {

constexpr std::array<std::uint8_t, 2> gzip_magic{0x1F, 0x8B};
constexpr std::array<std::uint8_t, 4> zstd_magic{0x28, 0xB5, 0x2F, 0xFD};
constexpr std::array<std::uint8_t, 4> skipped_magic{0x50, 0x2A, 0x4D, 0x18};  // of frames that have no data

/// The number of a file's first bytes, at most those of a magic number, that are its.
template <std::size_t size>
std::size_t common(std::span<std::uint8_t const> begin, std::array<std::uint8_t, size> const& magic) {
  bool const skipped = magic.front() == skipped_magic.front();
  std::size_t same = 0;
  while (same < std::min(begin.size(), size) &&
         (begin[same] == magic[same] || (skipped && same == 0 && (begin[0] & 0xF0U) == magic[0]))) {
    ++same;
  }
  return same;
}

bool is_gzip(std::span<std::uint8_t const> begin) {
  return common(begin, gzip_magic) == gzip_magic.size();
}

bool is_zstd(std::span<std::uint8_t const> begin) {
  return common(begin, zstd_magic) == zstd_magic.size() || common(begin, skipped_magic) == skipped_magic.size();
}

/// Whether bytes may be the start of a magic number that is not complete.
bool may_be_magic(std::span<std::uint8_t const> begin) {
  return common(begin, gzip_magic) == begin.size() || common(begin, zstd_magic) == begin.size() ||
         common(begin, skipped_magic) == begin.size();
}

class Gzip final : public Decompressor {
 public:
  Gzip() {
    constexpr int gzip_only = 16;
    if (inflateInit2(&stream_, MAX_WBITS + gzip_only) != Z_OK) {
      throw Error("zlib cannot start to decompress");
    }
  }
  Gzip(Gzip const&) = delete;
  Gzip& operator=(Gzip const&) = delete;
  ~Gzip() override { inflateEnd(&stream_); }

  void start_member() override { inflateReset(&stream_); }

  Progress decompress(std::span<unsigned char const> from, std::span<char> into) override {
    stream_.next_in = from.data();
    stream_.avail_in = static_cast<uInt>(from.size());
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = static_cast<uInt>(into.size());
    int const code = inflate(&stream_, Z_NO_FLUSH);
    Progress progress{.read = from.size() - stream_.avail_in,
                      .written = into.size() - stream_.avail_out,
                      .ended = code == Z_STREAM_END};
    if (code != Z_STREAM_END && code != Z_OK && code != Z_BUF_ERROR) {
      progress.failure = stream_.msg == nullptr ? "unknown" : stream_.msg;
    }
    return progress;
  }

 private:
  z_stream stream_{};
};

class Zstd final : public Decompressor {
 public:
  Zstd() : stream_(ZSTD_createDCtx()) {
    if (stream_ == nullptr) {
      throw Error("zstd cannot start to decompress");
    }
  }
  Zstd(Zstd const&) = delete;
  Zstd& operator=(Zstd const&) = delete;
  ~Zstd() override { ZSTD_freeDCtx(stream_); }

  void start_member() override { ZSTD_DCtx_reset(stream_, ZSTD_reset_session_only); }

  Progress decompress(std::span<unsigned char const> from, std::span<char> into) override {
    ZSTD_inBuffer input{from.data(), from.size(), 0};
    ZSTD_outBuffer output{into.data(), into.size(), 0};
    std::size_t const left = ZSTD_decompressStream(stream_, &output, &input);
    if (ZSTD_isError(left) == 0) {
      return {.read = input.pos, .written = output.pos, .ended = left == 0};
    }
    bool const window = ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge;
    return {.read = input.pos,
            .failure = window ? "it needs a window of more than 128 MiB; compress it with zstd --long=27 or without"
                              : ZSTD_getErrorName(left)};
  }

 private:
  ZSTD_DCtx* stream_;
};

/// Null for Compression::none.
std::unique_ptr<Decompressor> make_decompressor(Compression compression) {
  switch (compression) {
    case Compression::none:
      return nullptr;
    case Compression::gzip:
      return std::make_unique<Gzip>();
    case Compression::zstd:
      return std::make_unique<Zstd>();
  }
  return nullptr;
}

}  // namespace

std::string decompress(std::string bytes, Compression compression) {
  auto const decompressor = make_decompressor(compression);
  if (!decompressor) {
    return bytes;
  }
  std::string text;
  std::array<char, std::size_t{1} << 16> part{};
  std::span<unsigned char const> rest(reinterpret_cast<unsigned char const*>(bytes.data()), bytes.size());
  for (bool ended = false; !ended;) {
    Decompressor::Progress const progress = decompressor->decompress(rest, part);
    bool const stuck = progress.read == 0 && progress.written == 0 && !progress.ended;
    if (stuck || !progress.failure.empty()) {
      throw Error("cannot decompress {} bytes: {}", bytes.size(), stuck ? "they end too early" : progress.failure);
    }
    text.append(part.data(), progress.written);
    rest = rest.subspan(progress.read);
    ended = progress.ended;
  }
  return text;
}

bool is_compressed(std::span<std::uint8_t const> begin) {
  return is_gzip(begin) || is_zstd(begin);
}

TextBytes::TextBytes(std::filesystem::path const& path) : file_(path, O_RDONLY | O_NOCTTY) {
  if (!file_.is_open()) {
    throw DataError(open_problem(path, errno));
  }
}

bool TextBytes::is_terminal() const {
  return ::isatty(file_.get()) == 1;
}

/// Waits for bytes and reads those that are there; 0 at the end of the file.
std::size_t TextBytes::read_file(std::span<unsigned char> into) {
  while (!ended_) {
    constexpr int milliseconds = 200;
    pollfd waiting{file_.get(), POLLIN, 0};
    int const ready = ::poll(&waiting, 1, milliseconds);
    if (interrupted_) {
      throw Error("reading is interrupted");
    }
    if (ready == 0 || (ready < 0 && errno == EINTR)) {
      continue;
    }
    ssize_t const count = ::read(file_.get(), into.data(), into.size());
    if (count >= 0) {
      ended_ = count == 0;
      position_ += count;
      return static_cast<std::size_t>(count);
    }
    if (errno != EAGAIN && errno != EINTR) {  // EAGAIN: of a terminal that another program has set not to block
      throw DataError("cannot read: {}", std::strerror(errno));
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

/// Tells what begins here. Waits for more bytes only where those that are there may be the start of a magic number.
Compression TextBytes::next_kind() {
  while (available() < zstd_magic.size() && may_be_magic(unused()) && !is_compressed(unused()) && fill()) {
  }
  return is_gzip(unused()) ? Compression::gzip : is_zstd(unused()) ? Compression::zstd : Compression::none;
}

/// Starts the member after the one that ended, or after zeros that fill a block of a tape or disk; false at the end of
/// the file. Throws DataError for anything else.
bool TextBytes::next_member() {
  while (available() > 0 || fill()) {
    begin_ = static_cast<std::size_t>(std::find_if(input_.begin() + static_cast<std::ptrdiff_t>(begin_),
                                                   input_.begin() + static_cast<std::ptrdiff_t>(end_),
                                                   [](unsigned char byte) { return byte != 0; }) -
                                      input_.begin());
    if (available() > 0) {
      if (next_kind() != kind_) {
        throw DataError(
            "byte {} of the {} file (0x{:02X}) is neither the start of another {} nor zero padding; "
            "the file is damaged, or something else was appended",
            used() + 1, name_of_kind(), input_[begin_], kind_ == Compression::gzip ? "member" : "frame");
      }
      decompressor_->start_member();
      in_member_ = true;
      more_inside_ = false;
      return true;
    }
  }
  return false;
}

std::size_t TextBytes::read(std::span<char> into) {
  if (!failure_.empty()) {
    throw DataError(failure_);
  }
  if (!known_) {
    kind_ = next_kind();
    known_ = true;
    decompressor_ = make_decompressor(kind_);
    in_member_ = decompressor_ != nullptr;
  }
  if (decompressor_) {
    return decompress_into(into);
  }
  if (available() == 0) {
    return read_file({reinterpret_cast<unsigned char*>(into.data()), into.size()});
  }
  std::size_t const count = std::min(available(), into.size());
  std::memcpy(into.data(), input_.data() + begin_, count);
  begin_ += count;
  return count;
}

std::size_t TextBytes::decompress_into(std::span<char> into) {
  while (true) {
    if (!in_member_ && !next_member()) {
      return 0;
    }
    if (!more_inside_ && available() == 0 && !fill()) {
      throw DataError("damaged or cut-off {} data (unexpected end of file after byte {})", name_of_kind(), position_);
    }
    Decompressor::Progress const progress = decompressor_->decompress(unused(), into);
    begin_ += progress.read;
    more_inside_ = progress.written == into.size();
    in_member_ = !progress.ended;
    if (!progress.failure.empty()) {
      failure_ =
          fmt::format("damaged or cut-off {} data at byte {} ({})", name_of_kind(), used() + 1, progress.failure);
      if (progress.written == 0) {
        throw DataError(failure_);
      }
    }
    if (progress.written > 0) {
      return progress.written;
    }
  }
}

}  // namespace heddle
