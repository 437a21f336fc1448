#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace heddle {

/// Keeps a directory for one process where the file system has no locks: a file with a random number and a count that a
/// thread raises. Others see by the count whether the holder is alive, also on other hosts and in containers, where a
/// process id would mean nothing.
class FileLease {
 public:
  struct Times {
    std::chrono::milliseconds renewal{5000};
    /// A lease whose count has not changed for this long is taken over.
    std::chrono::milliseconds expiry{20000};
  };

  /// Takes the lease, or returns nothing if another process holds it, whose description is then in `holder`. Waits for
  /// the time of expiry if there is a file, and calls `waiting` meanwhile, fifty times in the time of renewal.
  /// `description` has one line. Throws Error if the file cannot be written, at
  /// once DataError if it is a symbolic link or not a regular file.
  static std::optional<FileLease> take(std::filesystem::path const& path, std::string const& description,
                                       std::string& holder, Times times, std::function<void()> const& waiting = {});
  /// The description of a lease's holder that raises the count within the time of expiry; nothing if there is none.
  /// Throws DataError as `take` does.
  static std::optional<std::string> holder(std::filesystem::path const& path, Times times);

  ~FileLease();
  FileLease(FileLease&&) noexcept;
  FileLease& operator=(FileLease&&) noexcept;

  /// False if the file is gone or another process has taken it over; true if that cannot be found out now.
  bool held() const;

 private:
  struct State;
  explicit FileLease(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace heddle
