#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

namespace heddle {

/// The message about a file that could not be opened with `error`, an errno: "data/train.h5: does not exist (relative
/// to /home/you)", for an absolute path without the working directory, or "PATH: cannot be opened: Permission denied".
std::string open_problem(std::filesystem::path const& path, int error);

/// The message about a file or directory that does not exist.
std::string missing_file(std::filesystem::path const& path);

/// The message about a path that names no regular file: as open_problem, "PATH: is a directory" or "PATH: is not a
/// regular file", which may never end or wait for a writer; "" if it names one. Symbolic links are followed.
std::string file_problem(std::filesystem::path const& path);

/// The content of a file, or the message that says why it was not read.
struct FileText {
  std::string text = {};
  std::string problem = {};  ///< "": the file was read
};

/// Reads a regular file that a user names, of at most `max_bytes`.
FileText read_file_text(std::filesystem::path const& path,
                        std::uintmax_t max_bytes = std::numeric_limits<std::uintmax_t>::max());

}  // namespace heddle
