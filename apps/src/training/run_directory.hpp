#pragma once

#include <filesystem>
#include <string_view>

namespace heddle {

/// A run's directory while this process trains in it: made where it is not there, and locked, so that a second process
/// that is told to train there stops instead of mixing its files in. Held by rank 0 alone.
class RunDirectory {
 public:
  /// ConfigError where the directory cannot be made or another process holds it.
  explicit RunDirectory(std::filesystem::path directory);
  ~RunDirectory();
  RunDirectory(RunDirectory const&) = delete;
  RunDirectory& operator=(RunDirectory const&) = delete;

  std::filesystem::path const& path() const { return directory_; }
  /// Replaces the file `name` by `text` at once: after a crash or on a full disk (Error) the old one is still whole.
  void replace_file(std::string_view name, std::string_view text) const;

 private:
  std::filesystem::path directory_;
  int lock_ = -1;
};

}  // namespace heddle
