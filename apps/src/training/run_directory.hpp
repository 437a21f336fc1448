#pragma once

#include <filesystem>
#include <heddle/io/files/file_lock.hpp>
#include <string_view>

namespace heddle {

/// A run's directory while this process trains in it. It is locked, so that a second process that would train there
/// stops instead of mixing its files in. Only rank 0 holds it, before anything of the run is read.
class RunDirectory {
 public:
  /// Makes the directory if it does not exist, and locks it. Throws ConfigError if it cannot be made, another process
  /// holds it, or the lock fails; a file system without locks is accepted, see `locked`.
  static RunDirectory open(std::filesystem::path const& directory);

  std::filesystem::path const& path() const { return directory_; }
  /// False if the file system has no locks, so that nothing keeps a second process out.
  bool locked() const { return locked_; }
  /// Replaces the file `name`; see heddle::replace_file.
  void replace_file(std::string_view name, std::string_view text) const;

 private:
  RunDirectory(std::filesystem::path directory, FileLock lock, bool locked);

  std::filesystem::path directory_;
  FileLock lock_;
  bool locked_;
};

}  // namespace heddle
