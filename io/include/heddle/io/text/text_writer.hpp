#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace heddle {

/// The compression of a text file.
enum class Compression : std::uint8_t { none, gzip, zstd };

/// The compression that a file's name asks for: ".gz" or ".zst" at its end.
Compression compression_of(std::filesystem::path const& path);
/// The text as a gzip member or a zstd frame; those that follow each other are one file. Throws Error if that fails.
std::string compress(std::string text, Compression compression);
/// The text of one of them. Throws Error for other bytes.
std::string decompress(std::string bytes, Compression compression);

/// Writes a text line by line: into a file, compressed as its name asks for, which appears when it is complete and
/// replaces an older one; or, for "-", to the standard output; or into a pipe.
class TextWriter {
 public:
  /// Throws DataError for a path that is not to be replaced, Error where nothing can be written there.
  explicit TextWriter(std::filesystem::path const& path);
  ~TextWriter();
  TextWriter(TextWriter&&) noexcept;
  TextWriter& operator=(TextWriter&&) noexcept;

  /// Writes the line and its end. Throws Error if that fails.
  void add(std::string_view line);
  /// Gives the file its name; without it, it is removed. Throws Error if not all could be written.
  void commit();

 private:
  struct Output;
  std::unique_ptr<Output> output_;
};

}  // namespace heddle
