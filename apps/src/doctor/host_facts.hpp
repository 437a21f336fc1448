#pragma once

#include <vector>

#include "cluster_findings.hpp"

namespace heddle {

/// The cores on which this process may run, ascending.
std::vector<int> own_cores();

/// Facts that should be the same on all hosts of a job: processor, memory, kernel, this program and its libraries, the
/// level of its kernels, limits and variables of the environment.
HostFacts own_facts();

}  // namespace heddle
