#pragma once

#include <memory>
#include <ostream>
#include <string>

#include "report/warning.hpp"
#include "run_directory.hpp"

namespace heddle {

/// The texts of a run: on the standard output and in the file log.txt of its directory, where each line begins with the
/// date and time in UTC. Used by rank 0; another rank's writes nothing.
class RunLog {
 public:
  /// `speaks`: on rank 0. `terminal`: the progress line is rewritten on the standard output.
  RunLog(bool speaks, bool terminal, Verbosity verbosity)
      : speaks_(speaks), terminal_(terminal), verbosity_(verbosity) {}

  /// Goes on in the directory's log.txt, with all that was written so far. A log that cannot be opened, or is a
  /// symbolic link, is warned about and not written.
  void open(RunDirectory const& directory);

  // All write lines, with or without a line break at their end, that do not disturb the progress line.
  /// Writes a warning: on the standard error and into log.txt. "" is none.
  void warn(std::string const& message);
  /// Writes the verdict.
  void say_always(std::string const& text);
  /// Writes into log.txt and, unless it is to be quiet, on the standard output.
  void say(std::string const& text);
  /// Writes into log.txt, and on the standard output only where it is to be verbose.
  void note(std::string const& text);
  /// Writes on the standard output only, and only where it is to be verbose: text that a file of the run has anyway.
  void show(std::string const& text);
  /// Writes the progress line, with date and time; into log.txt, and where there is no terminal, only if `due`.
  void progress(std::string const& text, bool due);

 private:
  void print(std::string const& text);
  void keep(std::string const& text);

  bool speaks_;
  bool terminal_;
  Verbosity verbosity_;
  bool line_open_ = false;
  std::string kept_;  ///< until there is a file
  std::unique_ptr<std::ostream> file_;
};

}  // namespace heddle
