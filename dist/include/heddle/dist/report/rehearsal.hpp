#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/parallel/communicator.hpp>

namespace heddle {

// Stand-ins with which a model runs a step without computing or without sending anything, so that its memory can be
// counted and its kernels timed: the real code takes the memory, and no formula has to follow it.

/// Every operation by one kernel that supports everything and touches no memory.
KernelRegistries idle_kernels();

/// The groups of a rank of `mesh`, whose other ranks need not be: every verb checks its arguments and moves nothing.
ParallelState idle_parallel_state(Mesh const& mesh, ParallelConfig const& config);

}  // namespace heddle
