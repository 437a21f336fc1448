#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heddle {

/// A training run that is started again when a rank, a launcher or a node is lost, or a rank hangs.
struct Supervision {
  std::vector<std::string> launcher;  ///< "mpirun", "-np", "8"; {ranks} in a word stands for the number below
  std::vector<std::string> training;  ///< the command that it launches: "heddle", "train", …
  std::vector<int> ranks;             ///< the numbers to try, one after another; empty: the launcher is as it is
  std::filesystem::path directory;    ///< of the run
};

/// Starts the training until it ends with a code that a restart would not change, or has ended four times without a
/// new step; returns that code. A start without a new step moves on to the next number of ranks. SIGUSR1 is passed on;
/// the first SIGTERM, SIGINT or SIGHUP is passed on as SIGUSR1, so that a checkpoint is written, a second one as
/// itself; after a signal nothing is started again. Throws Error if the launcher cannot be started.
int supervise(Supervision const& supervision);

}  // namespace heddle
