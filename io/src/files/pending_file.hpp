#pragma once

#include <filesystem>
#include <string_view>

namespace heddle {

/// A file that appears whole or not at all: it is written under a temporary name beside its target and renamed by
/// commit(). Without a commit it is removed.
class PendingFile {
 public:
  /// Chooses the temporary name; the caller creates the file with it.
  explicit PendingFile(std::filesystem::path target);
  ~PendingFile();
  PendingFile(PendingFile const&) = delete;
  PendingFile& operator=(PendingFile const&) = delete;

  std::filesystem::path const& target() const noexcept { return target_; }
  std::filesystem::path const& temporary() const noexcept { return temporary_; }

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
