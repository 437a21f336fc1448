#pragma once

#include <string>

namespace heddle {

/// Makes SIGUSR1, SIGTERM and SIGINT request a checkpoint and an orderly end instead of killing the process, during its
/// lifetime. A second SIGTERM or SIGINT kills the process. At most one object exists at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(StopSignal const&) = delete;
  StopSignal& operator=(StopSignal const&) = delete;

  bool received() const;
  /// "SIGTERM"; the last one received.
  std::string name() const;
  /// From now on a signal prints "heddle: NAME TEXT" at once, because there may be little time; nothing if `text` is
  /// empty.
  void set_notice(std::string const& text) const;
};

}  // namespace heddle
