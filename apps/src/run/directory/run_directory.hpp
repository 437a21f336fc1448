#pragma once

#include <filesystem>
#include <functional>
#include <heddle/io/files/file_lease.hpp>
#include <heddle/io/files/file_lock.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

/// A run's directory while this process trains in it. It is locked, so that a second process that would train there
/// stops instead of mixing its files in. Only rank 0 holds it, before anything of the run is read. On a file system
/// without locks a lease takes the lock's place.
class RunDirectory {
 public:
  /// Makes the directory if it does not exist, and locks it. Throws ConfigError if it cannot be made, another process
  /// holds it (the message names that process), or the lock fails. `waiting` is called while it waits to see whether
  /// the holder of a lease is alive.
  static RunDirectory open(std::filesystem::path const& directory, std::function<void()> const& waiting = {});
  /// Describes the process that holds the directory; nothing if none does. Changes nothing.
  static std::optional<std::string> holder(std::filesystem::path const& directory);
  /// Describes the process that has taken the directory's lock last, whether it still holds it or not; empty if none
  /// has. Reads only, so unlike `holder` it cannot be in the way of a process that is taking the lock.
  static std::string last_holder(std::filesystem::path const& directory);
  /// Whether a process has taken the directory's lock since last_holder returned this; nothing where that is not known,
  /// as the file system has no locks. Reads only. Throws std::filesystem::filesystem_error where the file system fails.
  static std::optional<bool> taken_since(std::filesystem::path const& directory, std::string const& last_holder);

  std::filesystem::path const& path() const { return directory_; }
  /// False on a file system without locks.
  bool locked() const { return !lease_; }
  /// False once the directory, its lock or its lease has been removed or replaced: nothing keeps others out any more.
  bool in_place() const;
  /// 16 characters that this directory keeps while it exists: one that is made again under its name has others.
  std::string identity() const;
  /// Replaces the file `name`, or a link or a FIFO of that name; see heddle::replace_file.
  void replace_file(std::string_view name, std::string_view text) const;

 private:
  RunDirectory(std::filesystem::path directory, FileLock lock, std::optional<FileLease> lease);

  std::filesystem::path directory_;
  FileLock lock_;
  std::optional<FileLease> lease_;
};

}  // namespace heddle
