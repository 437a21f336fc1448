#pragma once

#include <boost/json.hpp>
#include <chrono>
#include <string>

namespace heddle {

/// Completes "energy" in the content of a report.json (docs/run-directory.md): where the hosts had no counters, but the
/// run was a step of a Slurm job, asks Slurm's accounting by `sacct`, which gets at most this time. A step of which it
/// knows nothing, or 0 J, leaves the energy unknown, with that in its "reason".
void add_slurm_energy(boost::json::object& report, std::chrono::milliseconds patience = std::chrono::seconds(10));

/// The energy in words: "1,234 J, 5.6 J per million tokens (RAPL)" or "unknown (…)".
std::string describe_energy(boost::json::object const& report);

}  // namespace heddle
