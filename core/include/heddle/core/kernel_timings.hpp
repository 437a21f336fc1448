#pragma once

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

namespace heddle {

/// Seconds that implementations took for the same work, by name.
using TimesByName = std::map<std::string, double>;
/// By timing_key(problem).
using TimesByProblem = std::map<std::string, TimesByName>;
/// By operation: what one machine measured.
using KernelTimings = std::map<std::string, TimesByProblem>;

/// Of `names` the one that took the least time, if `by_speed` was timed, too, and took longer by more than the noise of
/// measurements (3 %); else `by_speed`.
std::string measured_choice(TimesByName const& times, std::string const& by_speed,
                            std::vector<std::string> const& names);

/// The processor: its name, and a digest of its family, model and vector instructions. `cpuinfo` is text as in Linux's
/// /proc/cpuinfo.
std::string describe_cpu(std::istream& cpuinfo);

/// What kernels' times depend on: this processor, the threads that kernels have, Heddle's version and how it was built.
/// Kokkos runs.
std::string machine_name();

}  // namespace heddle
