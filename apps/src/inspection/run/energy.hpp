#pragma once

#include <boost/json/object.hpp>
#include <chrono>

namespace heddle {

/// Completes "energy" in the content of a report.json (docs/run-directory.md): where the hosts had no counters, but the
/// run was a step of a Slurm job, asks Slurm's accounting by `sacct`, which gets at most this time. A step of which it
/// knows nothing, or 0 J, leaves the energy unknown, with that in its "reason".
void add_slurm_energy(boost::json::object& report, std::chrono::milliseconds timeout = std::chrono::seconds(10));

}  // namespace heddle
