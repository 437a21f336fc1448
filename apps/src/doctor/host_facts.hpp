#pragma once

#include "cluster_findings.hpp"

namespace heddle {

/// Facts that should be the same on all hosts of a job: processor, memory, kernel, this program and its libraries, the
/// level of its kernels, limits and variables of the environment.
HostFacts own_facts();

}  // namespace heddle
