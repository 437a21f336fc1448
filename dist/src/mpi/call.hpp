#pragma once

#include <mpi.h>

namespace heddle {

/// Throws Error with the verb and MPI's own message if `code` is not MPI_SUCCESS. Checks the result of every MPI
/// call.
void check_mpi(int code, char const* verb);

/// True between MPI's initialisation and its finalisation, so that handles can be freed.
bool mpi_is_running() noexcept;

}  // namespace heddle
