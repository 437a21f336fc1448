#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/parallel/communicator.hpp>

namespace heddle {

// Rehearses a step on groups whose other ranks do not exist: a model runs it without sending anything and, with
// KernelRegistries::idle, without computing. The code that allocates memory thus counts it, and no formula has to
// match that code.

/// The groups of a rank of `mesh`, whose other ranks need not exist: every verb checks its arguments and moves
/// nothing.
ParallelState idle_parallel_state(Mesh const& mesh, ParallelConfig const& config);

}  // namespace heddle
