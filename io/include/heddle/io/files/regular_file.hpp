#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <limits>
#include <memory>
#include <optional>
#include <string>

/// Access to the files of a run's directory. A symbolic link is never followed, so that nobody who can write to the
/// directory chooses a file elsewhere that Heddle then overwrites or reads; nor is a FIFO waited for.
namespace heddle {

enum class OutputMode {
  append,     ///< at the end of the file, which is created if it does not exist
  create_new  ///< a file that does not exist yet
};

/// A stream that writes to the file at `path`. Throws DataError if that is a symbolic link or no regular file, Error if
/// it cannot be opened. Errors of writing set the stream's badbit.
std::unique_ptr<std::ostream> open_output(std::filesystem::path const& path, OutputMode mode);

/// Reads the file, or its last `max_bytes` if it is longer; nothing if there is no file. Throws DataError if it is a
/// symbolic link or no regular file, or cannot be read.
std::optional<std::string> read_regular(std::filesystem::path const& path,
                                        std::int64_t max_bytes = std::numeric_limits<std::int64_t>::max());

}  // namespace heddle
