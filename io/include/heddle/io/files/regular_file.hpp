#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

/// Access to the files of a run's directory. Symbolic links are not followed, because anyone who can write to the
/// directory could otherwise choose a file elsewhere that Heddle overwrites or reads. FIFOs are not waited for.
namespace heddle {

enum class OutputMode {
  append,     ///< at the end of the file, which is created if it does not exist
  create_new  ///< a file that does not exist yet
};

/// A stream that writes to the file at `path`. Throws DataError if that is a symbolic link or not a regular file, Error
/// if it cannot be opened. Errors of writing set the stream's badbit.
std::unique_ptr<std::ostream> open_output(std::filesystem::path const& path, OutputMode mode);

/// Replaces the file by `text` atomically: after a crash or on a full disk (Error) the old one is still complete. On
/// return text and name are on the disk. The directory must exist. Throws DataError for a link, a device or a FIFO.
void replace_file(std::filesystem::path const& path, std::string_view text);

/// Throws where replace_file would, as long as the disk is not full: to be asked before long work.
void require_replaceable(std::filesystem::path const& path);

/// Waits until a file's content, or a directory's entries, are on the disk. Throws Error if that fails.
void sync_to_disk(std::filesystem::path const& path);

/// A directory that appears whole or not at all: it is made under another name, renamed when it is complete, and
/// otherwise removed again with all that it has.
class UnfinishedDirectory {
 public:
  /// Makes it. Throws Error if that fails or something has its name.
  explicit UnfinishedDirectory(std::filesystem::path path);
  UnfinishedDirectory(UnfinishedDirectory const&) = delete;
  UnfinishedDirectory& operator=(UnfinishedDirectory const&) = delete;
  ~UnfinishedDirectory();

  std::filesystem::path const& path() const { return path_; }
  /// Does not sync it, nor the directory that has the new name. Throws Error if something has that name.
  void rename_to(std::filesystem::path const& target);
  /// Takes the name of a directory, which is then removed. Where the file system can exchange names, something complete
  /// has that name at every moment.
  void exchange_with(std::filesystem::path const& target);

 private:
  std::filesystem::path path_;
  bool renamed_ = false;
};

/// Makes a directory and its missing parents, on the disk on return. Throws Error if it cannot be made.
void make_directory(std::filesystem::path const& directory);

/// Reads the file, or its last `max_bytes` if it is longer; nothing if there is no file. Throws DataError if it is a
/// symbolic link or not a regular file, or cannot be read.
std::optional<std::string> read_regular(std::filesystem::path const& path,
                                        std::int64_t max_bytes = std::numeric_limits<std::int64_t>::max());

}  // namespace heddle
