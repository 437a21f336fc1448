#pragma once

namespace heddle {

/// While it lives, SIGUSR1 asks for a checkpoint and an orderly end instead of killing the process. One at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(StopSignal const&) = delete;
  StopSignal& operator=(StopSignal const&) = delete;

  bool received() const;
};

}  // namespace heddle
