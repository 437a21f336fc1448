#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

class FileDescriptor;

/// The places of a text's lines: what a file beside the text keeps of it.
struct LineIndex {
  std::int64_t bytes = 0;            ///< of the plain text
  std::int64_t lines = 0;            ///< at least 1
  std::int64_t columns = 0;          ///< of the first line: one more than its tabs
  std::int64_t other_columns = 0;    ///< the first line with another number of them, from 1; 0: none
  std::vector<std::int64_t> blocks;  ///< where each block of lines begins, and last `bytes`
  std::string digest;                ///< SHA-256 (hexadecimal) of the plain text
};

/// A text file of which any block of lines can be read. Its index is made when it is opened first, and kept in a file
/// beside it; that of a file that has changed since is made again. A compressed text is decompressed once into a copy,
/// which is beside it, too. Where the directory cannot be written both are this process's alone.
class IndexedText {
 public:
  static constexpr std::int64_t block_lines = 8192;

  /// Throws DataError, which names file and line, for a text that cannot be read or that is not UTF-8.
  explicit IndexedText(std::filesystem::path path);
  ~IndexedText();
  IndexedText(IndexedText&&) noexcept;
  IndexedText& operator=(IndexedText&&) = delete;

  std::filesystem::path const& path() const { return path_; }
  LineIndex const& index() const { return index_; }
  /// A note for the user about the index; empty: there is nothing to say.
  std::string const& note() const { return note_; }

  /// The lines of a block, without their ends. May be called from several threads. Throws DataError if the file has
  /// changed.
  std::vector<std::string> read(std::int64_t block) const;

 private:
  struct State;
  void open();
  void build();
  bool load(std::string const& stored);

  std::filesystem::path path_;
  LineIndex index_;
  std::string note_;
  std::unique_ptr<FileDescriptor> file_;  ///< of the plain text
  std::unique_ptr<State> state_;
};

}  // namespace heddle
