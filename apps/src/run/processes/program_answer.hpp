#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace heddle {

/// The end of another system's program, and the first lines that it wrote to its standard output.
struct ProgramAnswer {
  enum class End : std::uint8_t { done, failed, not_found, late };
  End end = End::failed;
  std::string output;  ///< at most 64 KiB
};

/// Runs a command line of the shell with nothing on its standard input, and ends it, with the processes that it has
/// started, where it takes longer. No word of it may come from a user unless it has no character that is special to
/// the shell. Never throws for a program that fails.
ProgramAnswer ask_program(std::string const& command, std::chrono::milliseconds timeout);

}  // namespace heddle
