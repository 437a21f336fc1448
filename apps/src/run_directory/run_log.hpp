#pragma once

#include <fstream>
#include <string>

#include "run_directory.hpp"

namespace heddle {

/// The texts of a run: on the standard output and in the file log.txt of its directory. Used by rank 0; another rank's
/// writes nothing.
class RunLog {
 public:
  /// `speaks`: on rank 0. `terminal`: the progress line is rewritten on the standard output.
  RunLog(bool speaks, bool terminal) : speaks_(speaks), terminal_(terminal) {}

  /// Goes on in the directory's log.txt, with all that was written so far. A log that cannot be written is no error.
  void open(RunDirectory const& directory);

  /// Writes lines, with or without a line break at their end, that do not disturb the progress line.
  void say(std::string const& text);
  /// Writes lines into log.txt only.
  void note(std::string const& text);
  /// Writes the progress line; into log.txt, and where there is no terminal, only if `due`.
  void progress(std::string const& text, bool due);

 private:
  bool speaks_;
  bool terminal_;
  bool line_open_ = false;
  std::string kept_;  ///< until there is a file
  std::ofstream file_;
};

}  // namespace heddle
