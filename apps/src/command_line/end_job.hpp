#pragma once

#include <exception>
#include <heddle/dist/mpi/mpi.hpp>

namespace heddle {

/// Ends the whole job after an error of this rank: MPI_Abort gives the launcher the error's exit code (1 for one that
/// has none). Rank 0 prints the error at once. Other ranks mostly have the same error: they wait until rank 0's abort
/// has ended them, and print theirs, with rank and host, only if it does not. Not collective.
[[noreturn]] void end_job(MpiSession const& session, std::exception const& error);

}  // namespace heddle
