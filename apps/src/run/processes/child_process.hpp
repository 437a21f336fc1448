#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// Whether this process ignores the signal, as it does SIGHUP under nohup.
bool is_ignored(int signal);

/// Blocks SIGCHLD and the signals that are forwarded to a child, except a SIGHUP that is ignored, so that `wait`
/// returns them. While it exists they have no other effect. One at a time, in a program with one thread.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(BlockedSignals const&) = delete;
  BlockedSignals& operator=(BlockedSignals const&) = delete;

  /// The next signal; nothing if none comes in this time.
  std::optional<int> wait(std::chrono::milliseconds timeout) const;
};

/// The end of a process.
struct ProcessEnd {
  int code = 0;    ///< its exit code, or 128 + signal as a shell reports it
  int signal = 0;  ///< 0: it ended by itself
};

/// A program that runs in a process group of its own, without input; it gets SIGTERM if this process dies, or the
/// thread that started it ends. A process that uses MPI or has much memory may start it: nothing of it is copied.
class ChildProcess {
 public:
  enum class Output : std::uint8_t {
    shown,
    discarded  ///< and the program has no files that are open here
  };
  using Command = std::vector<std::string>;

  /// `command` is searched in PATH. Throws Error if it cannot be started.
  explicit ChildProcess(Command const& command, Output output = Output::shown);
  /// Ends the process and the remaining processes of its group: by SIGTERM, so that a launcher can end its ranks, and
  /// after five seconds by SIGKILL.
  ~ChildProcess();
  ChildProcess(ChildProcess const&) = delete;
  ChildProcess& operator=(ChildProcess const&) = delete;

  void send(int signal) const;
  /// The end of the process, if it has ended.
  std::optional<ProcessEnd> ended();

 private:
  pid_t process_;
  std::optional<ProcessEnd> end_;
};

}  // namespace heddle
