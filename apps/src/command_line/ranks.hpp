#pragma once

#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/dist/mpi/mpi.hpp>

namespace heddle {

/// Calls `work` on every rank that a launcher has started, with MPI, else in this process alone with null. If all ranks
/// fail alike, by a wrong command line, configuration or file, each returns the exit code, and rank 0 prints why. Any
/// other error of a rank ends the whole job: MPI_Abort gives the launcher the exit code (1 for an error that has none),
/// after rank 0 has printed its error at once and others, after two seconds, theirs with rank and host.
[[nodiscard]] ExitCode run_on_ranks(std::function<ExitCode(MpiSession const*)> const& work);

}  // namespace heddle
