#pragma once

#include <filesystem>
#include <string_view>

namespace heddle {

class FileDescriptor;

/// A file that appears whole or not at all: it is written under a temporary name beside its target and renamed by
/// commit(). Without a commit it is removed. Messages name the target.
class PendingFile {
 public:
  /// Chooses the temporary name. Throws DataError if the target is there and not a regular file: a symbolic link or a
  /// device is not replaced.
  explicit PendingFile(std::filesystem::path target);
  ~PendingFile();
  PendingFile(PendingFile const&) = delete;
  PendingFile& operator=(PendingFile const&) = delete;

  std::filesystem::path const& target() const noexcept { return target_; }
  std::filesystem::path const& temporary() const noexcept { return temporary_; }

  /// Creates the file, under its temporary name, and opens it for writing. Throws Error if that fails.
  FileDescriptor create() const;
  /// Writes the whole file and syncs it to the disk. Throws Error if that fails.
  void write(std::string_view content) const;
  /// Syncs the bytes that the caller has written to the disk. Throws Error if that fails.
  void sync() const;

  /// Gives the file its name, replacing an older file. Throws Error if that fails.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

/// Makes a directory and its missing parents. The destructor removes those that it made and that are empty, unless
/// keep() was called. Throws Error if the directory cannot be made.
class PendingDirectory {
 public:
  explicit PendingDirectory(std::filesystem::path directory);
  ~PendingDirectory();
  PendingDirectory(PendingDirectory const&) = delete;
  PendingDirectory& operator=(PendingDirectory const&) = delete;

  /// Syncs the names of the directories that it made to the disk. Throws Error if that fails.
  void sync() const;
  void keep() noexcept { keep_ = true; }

 private:
  std::filesystem::path directory_;
  std::filesystem::path existing_;  ///< the nearest ancestor that existed before
  bool keep_ = false;
};

}  // namespace heddle
