#pragma once

#include <mpi.h>

namespace heddle {

/// Throws Error naming the verb and MPI's own words where `code` is not MPI_SUCCESS. Every MPI call's result comes
/// here.
void check_mpi(int code, char const* verb);

/// MPI is between its start and its end, so that handles can be freed.
bool mpi_is_running() noexcept;

}  // namespace heddle
