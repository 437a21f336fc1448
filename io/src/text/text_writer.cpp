#include <fmt/format.h>
#include <zstd.h>
#define ZLIB_CONST  // zlib.h: what is read is const
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/text/text_writer.hpp>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "files/pending_file.hpp"

namespace heddle {

namespace {

std::string gzip(std::string_view text) {
  z_stream stream{};
  constexpr int with_gzip_header = 16 + MAX_WBITS;
  constexpr int memory_level = 8;
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, with_gzip_header, memory_level, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    throw Error("zlib cannot start to compress");
  }
  std::unique_ptr<z_stream, int (*)(z_stream*)> const ending(&stream, deflateEnd);
  std::string bytes(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef const*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  int const result = deflate(&stream, Z_FINISH);
  bytes.resize(stream.total_out);
  if (result != Z_STREAM_END) {
    throw Error("zlib could not compress a text of {} bytes", text.size());
  }
  return bytes;
}

}  // namespace

Compression compression_of(std::filesystem::path const& path) {
  return path.extension() == ".gz"    ? Compression::gzip
         : path.extension() == ".zst" ? Compression::zstd
                                      : Compression::none;
}

std::string compress(std::string text, Compression compression) {
  if (compression != Compression::zstd) {
    return compression == Compression::gzip ? gzip(text) : std::move(text);
  }
  std::string bytes(ZSTD_compressBound(text.size()), '\0');
  std::size_t const size = ZSTD_compress(bytes.data(), bytes.size(), text.data(), text.size(), ZSTD_CLEVEL_DEFAULT);
  if (ZSTD_isError(size) != 0) {
    throw Error("zstd could not compress a text of {} bytes: {}", text.size(), ZSTD_getErrorName(size));
  }
  bytes.resize(size);
  return bytes;
}

struct TextWriter::Output {
  explicit Output(std::filesystem::path const& given);

  /// Compresses and writes the collected lines.
  void write_collected();

  std::filesystem::path path;
  std::optional<PendingFile> pending;  ///< none for a stream
  std::unique_ptr<std::ostream> file;  ///< none for the standard output
  Compression compression;
  bool written = false;
  std::string collected;
};

TextWriter::Output::Output(std::filesystem::path const& given) : path(given), compression(compression_of(given)) {
  if (path != "-") {
    std::error_code unknown;  // opening it will say what is wrong
    bool const stream = std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown);
    if (!stream) {
      pending.emplace(path);
    }
    file = pending ? open_output(pending->temporary(), OutputMode::create_new) : open_output(path, OutputMode::stream);
  }
}

void TextWriter::Output::write_collected() {
  std::ostream& out = file ? *file : std::cout;
  std::string const bytes = compress(std::exchange(collected, {}), compression);
  if (!out.write(bytes.data(), std::ssize(bytes))) {
    throw Error("{}: cannot write: {}", path == "-" ? "the standard output" : path.string(), std::strerror(errno));
  }
  written = true;
}

TextWriter::TextWriter(std::filesystem::path const& path) : output_(std::make_unique<Output>(path)) {}
TextWriter::~TextWriter() = default;
TextWriter::TextWriter(TextWriter&&) noexcept = default;
TextWriter& TextWriter::operator=(TextWriter&&) noexcept = default;

void TextWriter::add(std::string_view line) {
  constexpr std::size_t enough = std::size_t{1} << 20;
  output_->collected += line;
  output_->collected += '\n';
  if (output_->collected.size() >= enough) {
    output_->write_collected();
  }
}

void TextWriter::commit() {
  if (!output_->collected.empty() || !output_->written) {  // also an empty file is a compressed one
    output_->write_collected();
  }
  std::ostream& out = output_->file ? *output_->file : std::cout;
  if (!out.flush()) {
    throw Error("{}: cannot write: {}", output_->path.string(), std::strerror(errno));
  }
  if (output_->pending) {
    output_->file.reset();
    output_->pending->sync();
    output_->pending->commit();
  }
}

}  // namespace heddle
