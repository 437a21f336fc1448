#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace heddle {

class FileDescriptor;

/// A lock on a file, which the kernel releases when the process that holds it ends. It therefore shows whether a
/// process is alive, also between containers, which may have the same host name and process ids, and over a network
/// file system. It is advisory: it affects only processes that also try to take it.
class FileLock {
 public:
  enum class Kind { shared, exclusive };
  enum class Result { taken, busy, not_supported };

  /// Opens the file, creating it, without a lock. Throws Error if it cannot be opened, or is a symbolic link or another
  /// thing than a regular file.
  explicit FileLock(std::filesystem::path path);
  ~FileLock();
  FileLock(FileLock&&) noexcept;
  FileLock& operator=(FileLock&&) = delete;

  /// Takes the lock, in place of one that this object holds, unless other holders exclude it (busy) or the file system
  /// has no locks. Throws Error on any other failure.
  Result try_take(Kind kind);
  /// Takes the lock as try_take does, but waits for other holders.
  Result take(Kind kind);

  /// False once the path names no file, or another than the one that was opened; true if that cannot be found out now.
  bool in_place() const;

  /// Replaces the file's content, which readers who find it locked may print. Throws Error if it cannot be written.
  void describe(std::string_view text);
  /// The content, at most 4 KiB of it.
  std::string description() const;

 private:
  Result lock(int operation);

  std::filesystem::path path_;
  std::unique_ptr<FileDescriptor> file_;
};

}  // namespace heddle
