#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

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

/// The base of every error that Heddle throws: the message says what was wrong, where, and what would be right. A
/// message is a string, or fmt's format string with its arguments.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string const& message, ExitCode code = ExitCode::failure)
      : std::runtime_error(message), code_(code) {}
  template <class First, class... Rest>
  explicit Error(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest)
      : Error(fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)) {}

  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// An error whose class says the exit code.
template <ExitCode exit_code>
struct ErrorOf : Error {
  explicit ErrorOf(std::string const& message) : Error(message, exit_code) {}
  template <class First, class... Rest>
  explicit ErrorOf(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest)
      : Error(fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...), exit_code) {}
};

/// The command line was wrong.
struct UsageError : ErrorOf<ExitCode::usage> {
  using ErrorOf::ErrorOf;
};

/// A file's content cannot be used: a dataset, a text, a checkpoint.
struct DataError : ErrorOf<ExitCode::bad_data> {
  using ErrorOf::ErrorOf;
};

/// The configuration is impossible, or asks for something that this build or this number of ranks cannot do.
struct ConfigError : ErrorOf<ExitCode::bad_config> {
  using ErrorOf::ErrorOf;
};

}  // namespace heddle
