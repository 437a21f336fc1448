#pragma once

#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

namespace heddle {

/// True if mpirun, mpiexec or srun started this process as one of a job's ranks. A program started by hand needs no
/// MPI: Communicator::self() is its world.
bool launched_by_mpi();

/// The place of a process among those that a launcher started.
struct LaunchedRank {
  int rank = 0;
  int ranks = 1;
};

/// This process's place, from the launcher's environment; rank 0 of 1 without a launcher of several. For programs that
/// do not start MPI: their processes have no other way to know of each other.
LaunchedRank launched_rank();

/// The start of a command line that starts `ranks` ranks in the way in which this process was started: "mpirun -np 4",
/// "mpiexec -n 4", "srun -n 4", or "" for a process that was started by hand.
std::string launcher_command(int ranks);

/// The MPI library's name and version, for example "Open MPI v4.1.4"; needs no MpiSession.
std::string mpi_library();
/// The type of Slurm's `srun --mpi` by which ranks of this MPI library find each other.
std::string slurm_mpi_type();

/// Elements of at most 4 bytes in a message that Open MPI sends over TCP without asking the receiver first (below
/// 64 KiB): while ranks compute, each question would wait for their next MPI call, queued after other messages' bytes.
inline constexpr std::int64_t eager_elements = 15'000;

/// Initialises MPI and finalises it on destruction: at most one at a time, made and destroyed by the main thread, on
/// every rank of the job. If MPI is already initialised, it is used and left so. Communicators may outlive it: they
/// notice that MPI is finalised.
class MpiSession {
 public:
  /// `elements_per_call` bounds the count of one MPI call, which is an int in MPI 3; larger tensors are sent in
  /// pieces. Throws ConfigError if the launcher started several ranks of which MPI sees one, and if another job of this
  /// host has the name of this rank's memory there; Error if MPI fails.
  /// `elements_while_computing` bounds it further for the reductions that progress while ranks compute.
  explicit MpiSession(std::int64_t elements_per_call = std::numeric_limits<int>::max(),
                      std::int64_t elements_while_computing = eager_elements);
  /// Waits for all ranks and finalises MPI; collective. While an exception passes it does not, since the other ranks
  /// may be waiting in a collective; the rank's exit (better: `abort`) then ends the job.
  ~MpiSession();

  /// All ranks: a duplicate of MPI's own world, made once.
  Communicator const& world() const;
  /// Whether all ranks call this with the same text, as ranks do that fail alike: each may then end by itself. Waits
  /// for them, two seconds at most; where it returns false the job must be aborted.
  bool all_agree(std::string_view text) const;
  /// Ends the whole job with exit code `code`: for a rank that fails while others may wait for it.
  [[noreturn]] void abort(int code) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle
