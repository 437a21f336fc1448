#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace heddle {

class FileDescriptor;

/// The name under which something is written until it is complete: ".NAME.1a2b3c4d.partial", where `prefix` is
/// ".NAME.". The digits are random: another process, on another host or in another container, may have this one's id.
std::string private_name(std::string const& prefix);
/// Whether private_name may have given this name.
bool is_private_name(std::string_view name, std::string_view prefix);

/// Throws DataError if a rename to the target would replace something other than a file's content: a symbolic link
/// would become a file beside the one that was meant, a device node would be gone for all.
void require_regular_or_absent(std::filesystem::path const& target);

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
class MadeDirectories {
 public:
  explicit MadeDirectories(std::filesystem::path directory);
  ~MadeDirectories();
  MadeDirectories(MadeDirectories const&) = delete;
  MadeDirectories& operator=(MadeDirectories const&) = delete;

  /// Syncs the names of the directories that it made to the disk. Throws Error if that fails.
  void sync() const;
  void keep() noexcept { keep_ = true; }

 private:
  std::filesystem::path directory_;
  std::filesystem::path existing_;  ///< the nearest ancestor that existed before
  bool keep_ = false;
};

/// A directory that a store of checkpoints makes under another name, renames when it is complete, and otherwise removes
/// again with all that it has.
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
  /// Takes the name of a directory, which is then removed: something complete has that name at every moment. False, and
  /// nothing is changed, where the file system cannot exchange names.
  bool exchange_with(std::filesystem::path const& target) const;

 private:
  std::filesystem::path path_;
  bool renamed_ = false;
};

}  // namespace heddle
