#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace heddle {

/// A name for a rank's memory in a directory that all processes of a host see (/dev/shm), which one process at a time
/// may have. Open MPI names its segments by the process number of mpirun, which is the same for jobs that each have a
/// PID namespace of their own: they would write into each other's segments. A lock says so before MPI starts.
class SegmentName {
 public:
  /// Throws ConfigError if another process has the name, also after the wait: ranks may outlive a killed mpirun for a
  /// moment. In a directory that cannot be written nothing is checked.
  SegmentName(std::string const& directory, std::string const& name,
              std::chrono::milliseconds wait = std::chrono::seconds(2));
  ~SegmentName();
  SegmentName(SegmentName const&) = delete;
  SegmentName& operator=(SegmentName const&) = delete;

  /// The directory of Open MPI's segments.
  static std::string directory();
  /// The name of this process's segment; nothing where the launcher gives none.
  static std::optional<std::string> own();

 private:
  int file_;
};

}  // namespace heddle
