#pragma once

#include <stdexcept>
#include <string>

namespace heddle {

/// Exit codes of the process; see docs/reference/exit-codes.md. Only `main` turns an Error into one of these.
enum class ExitCode : int {
  done = 0,
  failure = 1,
  usage = 64,
  bad_data = 65,
  replicas_diverged = 70,
  loss_not_finite = 71,
  requeue = 75,
  bad_config = 78,
  rank_hung = 86,
};

/// The base of every error that Heddle throws: the message says what was wrong, where, and what would be right.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string const& message, ExitCode code = ExitCode::failure)
      : std::runtime_error(message), code_(code) {}

  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// The command line was wrong.
struct UsageError : Error {
  explicit UsageError(std::string const& message) : Error(message, ExitCode::usage) {}
};

/// A file's content cannot be used: a dataset, a text, a checkpoint.
struct DataError : Error {
  explicit DataError(std::string const& message) : Error(message, ExitCode::bad_data) {}
};

/// The configuration is impossible, or asks for something that this build or this number of ranks cannot do.
struct ConfigError : Error {
  explicit ConfigError(std::string const& message) : Error(message, ExitCode::bad_config) {}
};

}  // namespace heddle
