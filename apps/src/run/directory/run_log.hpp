#pragma once

#include <memory>
#include <ostream>
#include <string>

#include "run/directory/warning.hpp"
#include "run_directory.hpp"

namespace heddle {

/// The log of a run: on the standard output and in the file log.txt of its directory, where each line begins with the
/// date and time in UTC. Only rank 0 writes. A text has one or more lines, with or without a line break at the end; ""
/// writes nothing.
class RunLog {
 public:
  /// `terminal`: the progress line is rewritten on the standard output. `continued`: an earlier start has printed its
  /// header there.
  RunLog(bool is_rank_zero, bool terminal, Verbosity verbosity, bool continued = false)
      : is_rank_zero_(is_rank_zero), terminal_(terminal), verbosity_(verbosity), continued_(continued) {}

  /// Appends to the directory's log.txt, starting with all that was written so far. A log that cannot be opened, or is
  /// a symbolic link, is warned about and not written.
  void open(RunDirectory const& directory);

  /// Writes a warning: on the standard error and into log.txt.
  void warn(std::string const& message);
  /// Writes into log.txt and on the standard output, also with -q: the last lines of a run, and what a user must know.
  void notice(std::string const& text) { write(text, Verbosity::quiet); }
  /// Writes into log.txt and, except with -q, on the standard output.
  void info(std::string const& text) { write(text, Verbosity::normal); }
  /// Writes a line of a start's header: as `info` does, but where the output continues an earlier start's as `debug`.
  void header(std::string const& text) { write(text, continued_ ? Verbosity::verbose : Verbosity::normal); }
  /// Writes a warning of a start's header: as `warn` does, or as `header` where an earlier start has printed it.
  void header_warning(std::string const& message);
  /// Writes into log.txt, and with -v on the standard output.
  void debug(std::string const& text) { write(text, Verbosity::verbose); }
  /// With -v writes on the standard output only: what another file of the run has, too.
  void print_verbose(std::string const& text);
  /// Writes the progress line, with date and time; into log.txt, and where there is no terminal, only if `due`.
  void progress(std::string const& text, bool due);

 private:
  /// Writes into log.txt, and on the standard output from the verbosity `min` on.
  void write(std::string const& text, Verbosity min);
  void print(std::string const& text);
  void keep(std::string const& text);

  bool is_rank_zero_;
  bool terminal_;
  Verbosity verbosity_;
  bool continued_;
  bool line_open_ = false;
  std::string kept_;  ///< until there is a file
  std::unique_ptr<std::ostream> file_;
};

}  // namespace heddle
