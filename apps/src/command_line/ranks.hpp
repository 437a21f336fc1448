#pragma once

#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/dist/mpi/mpi.hpp>

namespace heddle {

/// Calls `work` on every rank that a launcher has started, with MPI, else in this process alone with null. An error of
/// a rank ends the whole job: MPI_Abort gives the launcher the error's exit code (1 for one that has none). Rank 0
/// prints the error at once. Other ranks mostly have the same error: they wait until rank 0's abort has ended them, and
/// print theirs, with rank and host, only if it does not.
ExitCode run_on_ranks(std::function<ExitCode(MpiSession const*)> const& work);

}  // namespace heddle
