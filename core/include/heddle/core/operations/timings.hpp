#pragma once

#include <heddle/core/base/cpu_level.hpp>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

namespace heddle {

/// Seconds that implementations took for the same work, by name.
using TimesByName = std::map<std::string, double>;
/// By timing_key(problem).
using TimesByProblem = std::map<std::string, TimesByName>;
/// Times by operation, measured on one machine.
using KernelTimings = std::map<std::string, TimesByProblem>;

/// The name that `auto` selects. `names` (at least one) are the implementations that support the problem, the fastest
/// by speed first. Selects the one with the shortest time if the first was timed too and is slower by more than the
/// measurement noise (3 %); otherwise the first.
std::string measured_choice(TimesByName const& times, std::vector<std::string> const& names);

/// The processor's name, with a digest of its family, model and vector instructions. `cpuinfo` is text in the format
/// of Linux's /proc/cpuinfo.
std::string describe_cpu(std::istream& cpuinfo);

/// The threads of a process that computes: Kokkos', or where the user has set more for the OpenMP runtime of vendor
/// libraries (OMP_NUM_THREADS), theirs.
int compute_threads();

/// The circumstances that kernels' times depend on: this processor, the level that its kernels are registered for, the
/// threads that kernels have, Heddle's version and how it was built. Kokkos must be initialised.
std::string machine_name(CpuLevel level);

/// Describes how two such names differ: `"1 thread" there, "2 threads" here`.
std::string machine_difference(std::string const& there, std::string const& here);

}  // namespace heddle
