#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace heddle {

/// The files of a command's output directory, which appear together or not at all. They are written in a private
/// directory, beside the target or, if that is a directory already, in it. commit() gives them their names. Without it
/// they are removed; nothing else is, except parents of the target that this object made and that are empty. What a
/// killed process left is removed by the next object with the same target. If it was killed while it replaced files,
/// the next one gives the old ones their names back or, once they were all aside, the new ones theirs.
class PendingDirectory {
 public:
  enum class Target {
    unused,  ///< a new directory or an empty one
    any      ///< also one that has other files
  };

  /// Makes the private directory and the target's missing parents. Throws UsageError if the target is another thing or
  /// has files and must have none, Error if nothing can be made there.
  explicit PendingDirectory(std::filesystem::path target, Target allowed = Target::unused);
  ~PendingDirectory();
  PendingDirectory(PendingDirectory const&) = delete;
  PendingDirectory& operator=(PendingDirectory const&) = delete;

  /// Where the files are to be written. They must be on the disk before commit().
  std::filesystem::path const& path() const;

  /// Puts everything in its place, on the disk on return: a new directory by one rename, otherwise entry by entry in
  /// the order of their names. Of two commands with one output the second throws UsageError, as where a target that was
  /// to be unused has files now or something has one of the names already, and the target stays as it was. Files of the
  /// target for whose names `replaced` is true are in nobody's way: they are removed. Throws DataError for one of those
  /// that is not a regular file, and Error for other failures.
  void commit(std::function<bool(std::string const& name)> const& replaced = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The text, such as an error's, with the targets in the place of private directories, which are gone when it is read.
std::string with_targets(std::string const& text);

}  // namespace heddle
