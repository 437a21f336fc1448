#pragma once

#include <functional>
#include <heddle/core/parallel/communicator.hpp>
#include <memory>
#include <string>

namespace heddle {

/// Detects that a run hangs. Collectives of a watched communicator and the phases that the program names are events. A
/// thread that calls no MPI looks for them; if this rank has none for a tenth of `hang_seconds`, it asks the other
/// ranks over UDP. If no rank has had an event for `hang_seconds`, and every rank that does not answer was asked for
/// that long, one rank per host prints which ranks are missing in which collective, since when, and where the others
/// wait; then every process that can ends with ExitCode::rank_hung. A slow rank is not a hang as long as any rank makes
/// progress, nor is a rank that does not answer and could not be reached at the start. Time in which the process itself
/// was stopped does not count.
class Watch {
 public:
  struct Options {
    double hang_seconds = 600;  ///< 0: nothing is watched, and no thread is started
    /// Called by the watch's thread with the report, once; the default prints it, if `prints`, and ends the process.
    std::function<void(std::string const& report, bool prints)> on_hang = {};
  };

  /// Starts the thread and finds out which ranks it can reach; collective over `world`, whose ranks give the same
  /// limit. Takes some seconds if UDP is closed between two of them. Throws Error if there is no socket for the
  /// exchange.
  Watch(Communicator const& world, Options options);
  /// Ends the thread; not collective.
  ~Watch();

  /// The world's backend, watched, as well as groups that are split off it. Called at most once. Not collective.
  std::shared_ptr<CommunicatorBackend> watched(std::shared_ptr<CommunicatorBackend> world);

  /// The hosts whose ranks do not reach each other, the same on every rank: "n1 and n2, within n3"; "" if all do.
  std::string const& unreachable() const;

  // For the thread that calls the collectives:
  /// Names the work that starts: `name`, a literal, is the subject of "rank 3 is NAME STEP"; step 0 is not printed.
  void phase(char const* name, std::int64_t step = 0);
  /// Names work after the last step: while all ranks answer from there, none of them hangs.
  void finish(char const* name, std::int64_t step = 0);
  /// Shows progress inside a phase.
  void heartbeat();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The world's backend in checked mode (parallel.checked), as well as groups that are split off it: before each
/// collective the ranks compare collective, sequence number, elements, dtype and reduction or root, and all throw Error
/// if they differ. Not collective.
std::shared_ptr<CommunicatorBackend> checked(std::shared_ptr<CommunicatorBackend> world);

}  // namespace heddle
