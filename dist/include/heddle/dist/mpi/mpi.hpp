#pragma once

#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <limits>
#include <memory>
#include <string>

namespace heddle {

/// True where mpirun, mpiexec or srun started this process as one of a job's ranks. A program started by hand needs no
/// MPI: Communicator::self() is its world.
bool launched_by_mpi();

/// MPI for as long as it lives: at most one at a time, made and destroyed by the main thread, on every rank of the job.
/// Where MPI runs already it is joined and left running. Must outlive no communicator: they notice that MPI has ended.
class MpiSession {
 public:
  /// `elements_per_call` bounds the count of one MPI call, which MPI 3 holds in an int; larger tensors go in pieces.
  /// Throws ConfigError where the launcher started several ranks of which MPI sees one, and Error where MPI fails.
  explicit MpiSession(std::int64_t elements_per_call = std::numeric_limits<int>::max());
  /// Collective, except while an exception passes: then MPI is left unfinished, as the other ranks may be waiting in a
  /// verb, and the rank's exit (better: `abort`) ends the job.
  ~MpiSession();
  MpiSession(MpiSession const&) = delete;
  MpiSession& operator=(MpiSession const&) = delete;

  /// All ranks; a duplicate of MPI's own world, made once.
  Communicator world() const;
  /// Ends the whole job, whose exit code becomes `code`: for a rank that fails while others may wait for it.
  [[noreturn]] void abort(int code) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle
