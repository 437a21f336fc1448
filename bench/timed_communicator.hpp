#pragma once

#include <heddle/core/parallel/communicator.hpp>

#include "breakdown.hpp"

namespace heddle {

/// The ranks of `world`; the time spent in collectives, in unfinished transfers and in the groups that it is split into
/// is added to `watch`, which must outlive them all.
Communicator timed(Communicator const& world, Stopwatch& watch);

}  // namespace heddle
