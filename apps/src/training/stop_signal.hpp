#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace heddle {

/// Makes SIGUSR1, SIGTERM and SIGINT request a checkpoint and an orderly end instead of killing the process, during its
/// lifetime. A second SIGTERM or SIGINT kills. One at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(StopSignal const&) = delete;
  StopSignal& operator=(StopSignal const&) = delete;

  bool received() const;
  /// "SIGTERM"; the last one received.
  std::string name() const;
};

/// While it exists, a signal prints at once where the run is and from where the same command continues: what
/// sent them often gives little time. One at a time.
class StopNotice {
 public:
  /// `checkpoints` is the directory that the notice names.
  explicit StopNotice(std::filesystem::path const& checkpoints);
  ~StopNotice();
  StopNotice(StopNotice const&) = delete;
  StopNotice& operator=(StopNotice const&) = delete;

  struct Steps {
    std::int64_t computing = 0;
    std::int64_t saved = -1;      ///< of the newest checkpoint on disk; -1: there is none
    std::int64_t in_memory = -1;  ///< of the newest one in memory
  };
  void set_steps(Steps const& steps);
};

}  // namespace heddle
