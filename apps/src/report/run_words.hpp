#pragma once

#include <filesystem>
#include <heddle/core/model/description.hpp>
#include <optional>
#include <string>
#include <vector>

#include "run_facts.hpp"

namespace heddle {

/// The keys that differ from their defaults, a line or more for each section: "[train] steps = 50, seed = 2\n".
std::string describe_changes(Config const& config);

/// The command line that starts `heddle COMMAND ARGUMENTS` again: with the launcher, if there is one, and quoted for a
/// shell.
std::string command_line(std::string const& command, std::vector<std::string> const& arguments, int ranks);

/// How a run ended, for its last lines.
struct Ending {
  std::string how;  ///< "done", "stopped early", "stopped by SIGTERM"
  std::int64_t step = 0;
  std::int64_t steps = 0;  ///< train.steps
  std::int64_t tokens = 0;
  double seconds = 0;
  std::int64_t best_step = 0;  ///< 0: nothing was validated
  double best_valid_loss = 0;
  std::filesystem::path directory;
  std::filesystem::path checkpoint;  ///< the newest
  std::string command;               ///< that goes on; see command_line
};

/// The last lines of a run: where it ended and why, the best loss, the speed if `facts` are given, the checkpoint, and
/// the command that goes on.
std::string verdict(Ending const& ending, ModelDescription const& model, RunFacts const* facts);

/// The same for a run that had ended before it was started again.
std::string nothing_to_do(Ending const& ending, ModelDescription const& model);

}  // namespace heddle
