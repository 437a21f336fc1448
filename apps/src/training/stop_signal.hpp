#pragma once

namespace heddle {

/// Makes SIGUSR1 request a checkpoint and an orderly end instead of killing the process, during its lifetime. One at a
/// time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(StopSignal const&) = delete;
  StopSignal& operator=(StopSignal const&) = delete;

  bool received() const;
};

}  // namespace heddle
