#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// A log of everything that this process does to files below a directory, for tests only: from it a disk can be made as
/// a crash would have left it.
namespace heddle {

struct FileEvent {
  enum class Kind { write, fsync, mkdir, rename, remove, symlink, mark };
  Kind kind{};
  std::string path;         ///< below the directory
  std::string other = {};   ///< of a rename the new path, of a symbolic link its target, of a write the bytes
  std::int64_t number = 0;  ///< of a write its offset, of a mark its number
};

/// Logs until it is destroyed. One at a time.
class FileLog {
 public:
  explicit FileLog(std::filesystem::path directory);
  ~FileLog();
  FileLog(FileLog const&) = delete;
  FileLog& operator=(FileLog const&) = delete;

  /// Adds a mark of the caller's.
  void mark(std::int64_t number);
  std::vector<FileEvent> const& events() const;
};

}  // namespace heddle
