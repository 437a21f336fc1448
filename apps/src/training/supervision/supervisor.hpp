#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hosts.hpp"

namespace heddle {

/// Placeholders in the launcher's arguments for the number of ranks and for the hosts, "n1:4,n2:4".
inline constexpr std::string_view ranks_place = "{ranks}";
inline constexpr std::string_view hosts_place = "{hosts}";

/// A training run that is started again when a rank, a launcher or a node is lost, or a rank hangs.
struct Supervision {
  std::vector<std::string>
      launcher;  ///< "mpirun", "-np", "8"; {ranks} and {hosts} in an argument stand for those below
  std::vector<std::string> training;  ///< the command that it launches: "heddle", "train", …
  /// More arguments of that command until a start has begun to train: options that hold only once.
  std::vector<std::string> at_first;
  std::vector<int> ranks;                   ///< the numbers to try, largest first; empty: the hosts' slots
  std::vector<Host> hosts;                  ///< in the order in which they are used; more than needed are spare
  std::filesystem::path directory;          ///< the run's directory
  std::optional<std::int64_t> resume_from;  ///< the step to which `at_first` goes back
  /// A launcher that has not ended this long after its ranks have released the run's directory is ended.
  std::chrono::milliseconds launcher_ends_within{30000};
  /// If no rank locks the run's directory within this time, the launcher is ended.
  std::chrono::milliseconds start_within{600000};
  /// The time to wait before the second restart without a new step, and three times as long before the third.
  std::chrono::milliseconds pause{10000};
};

/// Starts the training until it ends with a code that a restart would not change, or has ended four times without a
/// new step; returns that code. Where the launcher's code says less than the report that this start wrote, the report
/// counts: `done` gives 0, a stop by a signal 75. A start without a new step moves on to the next number of ranks.
/// Before each start the launcher starts `heddle --version` on each host alone; a host on which that fails or takes
/// more than ten seconds is left out. If the others are too few, the next number of ranks that they can run is taken. A
/// launcher is ended that does not end after its ranks, or whose ranks do not start to train. An error of the file
/// system while it looks at the directory has no consequence: it looks again. SIGUSR1 is forwarded; the first SIGTERM,
/// SIGINT or SIGHUP is forwarded as SIGUSR1, so that a checkpoint is written, a second one unchanged; after a signal
/// nothing is started again. Throws Error if the launcher cannot be started.
int supervise(Supervision const& supervision);

}  // namespace heddle
