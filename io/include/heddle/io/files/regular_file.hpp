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
  append,      ///< at the end of the file, which is created if it does not exist
  create_new,  ///< a file that does not exist yet
  stream       ///< a device, or a FIFO that a process reads; symbolic links are followed
};

/// A stream that writes to the file at `path`. Throws DataError if that is a symbolic link or not a regular file,
/// unless it is to be a stream, and for a FIFO without a reader or a socket; Error if it cannot be opened. Errors of
/// writing set the stream's badbit.
std::unique_ptr<std::ostream> open_output(std::filesystem::path const& path, OutputMode mode);
/// A stream that appends to the first `bytes` bytes of a file as `append` does; the rest of it is removed.
std::unique_ptr<std::ostream> open_output_after(std::filesystem::path const& path, std::int64_t bytes);

/// A stream that reads the file. Throws DataError if it is a symbolic link or not a regular file, or cannot be opened.
std::unique_ptr<std::istream> open_input(std::filesystem::path const& path);

/// Replaces the file by `text` atomically: after a crash or on a full disk (Error) the old one is still complete. On
/// return text and name are on the disk. The directory must exist. Throws DataError for a link, a device or a FIFO.
void replace_file(std::filesystem::path const& path, std::string_view text);

/// Throws where replace_file would, as long as the disk is not full: to be asked before long work.
void require_replaceable(std::filesystem::path const& path);

/// Waits until a file's content, or a directory's entries, are on the disk. Throws Error if that fails.
void sync_to_disk(std::filesystem::path const& path);

/// Makes a directory and its missing parents, on the disk on return. Throws Error if it cannot be made.
void make_directory(std::filesystem::path const& directory);

/// Reads the file, or its last `max_bytes` if it is longer; nothing if there is no file. Throws DataError if it is a
/// symbolic link or not a regular file, or cannot be read.
std::optional<std::string> read_regular(std::filesystem::path const& path,
                                        std::int64_t max_bytes = std::numeric_limits<std::int64_t>::max());

}  // namespace heddle
