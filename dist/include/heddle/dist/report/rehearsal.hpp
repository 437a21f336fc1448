#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/parallel/communicator.hpp>

namespace heddle {

// A model runs a step without sending anything among groups that are not there and, with KernelRegistries::idle,
// without computing: its memory is counted by the code that takes it, and no formula has to follow it.

/// The groups of a rank of `mesh`, whose other ranks need not be: every verb checks its arguments and moves nothing.
ParallelState idle_parallel_state(Mesh const& mesh, ParallelConfig const& config);

}  // namespace heddle
