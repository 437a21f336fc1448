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

/// The name that `auto` takes. `names`, one at least: the implementations that support the problem, the fastest by
/// speed first. The one that took the least time, if the first was timed, too, and took longer by more than the noise
/// of measurements (3 %); else the first.
std::string measured_choice(TimesByName const& times, std::vector<std::string> const& names);

/// The processor: its name, and a digest of its family, model and vector instructions. `cpuinfo` is text as in Linux's
/// /proc/cpuinfo.
std::string describe_cpu(std::istream& cpuinfo);

/// The circumstances that kernels' times depend on: this processor, its level in use, the threads that kernels have,
/// Heddle's version and how it was built. Kokkos runs.
std::string machine_name();

/// The parts in which two such names differ, in words: `"1 thread" there, "2 threads" here`.
std::string machine_difference(std::string const& there, std::string const& here);

}  // namespace heddle
