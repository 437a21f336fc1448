#pragma once

#include <filesystem>

namespace heddle {

/// A file that comes into being whole or not at all: it is written under a temporary name beside its target and renamed
/// by commit(). Without a commit nothing is left behind.
class PendingFile {
 public:
  /// Only chooses the temporary name; the caller creates the file under it.
  explicit PendingFile(std::filesystem::path target);
  ~PendingFile();
  PendingFile(PendingFile const&) = delete;
  PendingFile& operator=(PendingFile const&) = delete;

  std::filesystem::path const& target() const noexcept { return target_; }
  std::filesystem::path const& temporary() const noexcept { return temporary_; }

  /// Brings the written bytes to the disk. Error where that fails.
  void sync() const;

  /// Gives the file its name, replacing what had it before. Error where that fails.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

/// Makes a directory and its missing parents. Those that it made itself go again, when they are empty, unless keep()
/// was called. Throws Error where the directory cannot be made.
class PendingDirectory {
 public:
  explicit PendingDirectory(std::filesystem::path directory);
  ~PendingDirectory();
  PendingDirectory(PendingDirectory const&) = delete;
  PendingDirectory& operator=(PendingDirectory const&) = delete;

  /// Brings the names of those that it made to the disk. Error where that fails.
  void sync() const;
  void keep() noexcept { keep_ = true; }

 private:
  std::filesystem::path directory_;
  std::filesystem::path existing_;  ///< the nearest ancestor that was there before
  bool keep_ = false;
};

}  // namespace heddle
