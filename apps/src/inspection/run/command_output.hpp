#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace heddle {

/// The standard output of a program.
struct CommandOutput {
  std::string text;
  std::string problem;  ///< why there is none: it is not in PATH, ended with another code than 0, took too long …; ""
};

/// Runs a program, which is searched in PATH, without input; what it writes to standard error is lost. After `patience`
/// it is killed. Not under MPI, which forbids to start processes.
CommandOutput output_of(std::vector<std::string> const& command, std::chrono::milliseconds patience);

}  // namespace heddle
