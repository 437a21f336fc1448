#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace heddle {

/// A job's name for its memory in a directory that all processes of a host see (/dev/shm), which one job at a time may
/// have. Open MPI names its segments by the process number of mpirun, which is the same for jobs that each have a PID
/// namespace of their own: they would write into each other's segments. A lock shows that before MPI starts.
class SegmentName {
 public:
  struct Rank {
    std::string job = {};        ///< the job's name on this host
    bool first_on_host = false;  ///< holds the name for all of them
  };
  using Wait = std::chrono::milliseconds;

  /// The job's first rank takes the name. Throws ConfigError if another job still has it after the wait: ranks may
  /// outlive a killed mpirun for a moment. The others wait until their first rank has it; where it does not come, or
  /// the directory cannot be written, nothing is checked.
  SegmentName(std::string const& directory, Rank const& rank, Wait wait = std::chrono::seconds(2));
  ~SegmentName();
  SegmentName(SegmentName const&) = delete;
  SegmentName& operator=(SegmentName const&) = delete;

  /// The directory of Open MPI's segments.
  static std::string directory();
  /// This process; nothing where Open MPI's launcher did not start it.
  static std::optional<Rank> own();

 private:
  int file_;
};

}  // namespace heddle
