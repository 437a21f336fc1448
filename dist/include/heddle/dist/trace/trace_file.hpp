#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/measure/step_trace.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <iosfwd>

namespace heddle {

/// Reads a clock, in nanoseconds.
using Clock = std::function<std::int64_t()>;

/// The nanoseconds by which this rank's clock is ahead of rank 0's, from the shortest of a few exchanges of messages; 0
/// where the two may be one clock. Collective over `world`.
std::int64_t clock_offset(Communicator const& world, Clock const& now = StepTrace::now);

/// Writes the events of all ranks in Chrome's trace format (docs/reference/run-directory.md) to `output` of rank 0,
/// which holds the events of one rank at a time; null on the others. `offset` is this rank's clock_offset. Collective
/// over `world`; throws Error on every rank if the output fails.
void write_trace(Communicator const& world, StepTrace const& trace, std::int64_t offset, std::ostream* output);

}  // namespace heddle
