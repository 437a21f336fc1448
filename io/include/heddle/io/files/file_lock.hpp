#pragma once

#include <filesystem>
#include <memory>

namespace heddle {

class FileDescriptor;

/// A lock on a file, which the kernel releases when the process that holds it ends. So it shows whether a process is
/// alive, also between containers, which may have the same host name and process ids, and over a network file system.
/// It is advisory: it stops only those that try to take it.
class FileLock {
 public:
  enum class Kind { shared, exclusive };
  enum class Result { taken, busy, not_supported };

  /// Opens the file, creating it, without a lock. Throws Error where it cannot.
  explicit FileLock(std::filesystem::path path);
  ~FileLock();
  FileLock(FileLock&&) noexcept;
  FileLock& operator=(FileLock&&) = delete;

  /// Takes the lock, in place of one that this object holds, unless others hold the file in a way that excludes it
  /// (busy) or its file system has no locks. Throws Error on any other trouble.
  Result try_take(Kind kind);
  /// Waits for others; otherwise the same as try_take.
  Result take(Kind kind);

 private:
  Result lock(int operation);

  std::filesystem::path path_;
  std::unique_ptr<FileDescriptor> file_;
};

}  // namespace heddle
