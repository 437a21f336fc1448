#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/text/text_writer.hpp>
#include <iostream>
#include <optional>
#include <string>

#include "files/pending_file.hpp"

namespace heddle {

struct TextWriter::Output {
  explicit Output(std::filesystem::path const& given);
  ~Output();
  Output(Output const&) = delete;
  Output& operator=(Output const&) = delete;

  /// Compresses and writes what is collected; `last`: ends the gzip member.
  void flush(bool last);
  void write(char const* bytes, std::size_t count);

  std::filesystem::path path;
  std::optional<PendingFile> pending;  ///< none for a stream
  std::unique_ptr<std::ostream> file;  ///< none for the standard output
  std::optional<z_stream> compression;
  std::string collected;
};

TextWriter::Output::Output(std::filesystem::path const& given) : path(given) {
  if (path != "-") {
    std::error_code unknown;  // opening it will say what is wrong
    bool const stream = std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown);
    if (!stream) {
      pending.emplace(path);
    }
    file = pending ? open_output(pending->temporary(), OutputMode::create_new) : open_output(path, OutputMode::stream);
  }
  if (path.extension() == ".gz") {
    constexpr int with_gzip_header = 16;
    constexpr int memory_level = 8;
    if (deflateInit2(&compression.emplace(), Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + with_gzip_header,
                     memory_level, Z_DEFAULT_STRATEGY) != Z_OK) {
      throw Error("zlib cannot start to compress");
    }
  }
}

TextWriter::Output::~Output() {
  if (compression) {
    deflateEnd(&*compression);
  }
}

void TextWriter::Output::write(char const* bytes, std::size_t count) {
  std::ostream& out = file ? *file : std::cout;
  if (!out.write(bytes, static_cast<std::streamsize>(count))) {
    throw Error("{}: cannot write: {}", path == "-" ? "the standard output" : path.string(), std::strerror(errno));
  }
}

void TextWriter::Output::flush(bool last) {
  if (!compression) {
    write(collected.data(), collected.size());
    collected.clear();
    return;
  }
  std::array<char, 1 << 16> compressed;
  compression->next_in = reinterpret_cast<Bytef*>(collected.data());
  compression->avail_in = static_cast<uInt>(collected.size());
  do {
    compression->next_out = reinterpret_cast<Bytef*>(compressed.data());
    compression->avail_out = static_cast<uInt>(compressed.size());
    deflate(&*compression, last ? Z_FINISH : Z_NO_FLUSH);
    write(compressed.data(), compressed.size() - compression->avail_out);
  } while (compression->avail_out == 0);
  collected.clear();
}

TextWriter::TextWriter(std::filesystem::path const& path) : output_(std::make_unique<Output>(path)) {}
TextWriter::~TextWriter() = default;
TextWriter::TextWriter(TextWriter&&) noexcept = default;
TextWriter& TextWriter::operator=(TextWriter&&) noexcept = default;

void TextWriter::add(std::string_view line) {
  constexpr std::size_t enough = std::size_t{1} << 17;
  output_->collected += line;
  output_->collected += '\n';
  if (output_->collected.size() >= enough) {
    output_->flush(false);
  }
}

void TextWriter::commit() {
  output_->flush(true);
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
