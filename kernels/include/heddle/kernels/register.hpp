#pragma once

#include <heddle/core/base/cpu_level.hpp>
#include <string>

namespace heddle {

class KernelRegistries;

/// Registers every implementation that this build has, as a plug-in would: those for the highest instruction set that
/// `level` includes. Ranks that compute together are given one level. oneDNN uses the level of the process's first
/// call. Throws ConfigError where a library of kernels is missing.
void register_built_in_kernels(KernelRegistries& registries, CpuLevel level = usable_cpu_level());

/// The level and the instruction sets that its kernels were compiled for, in words.
std::string describe_instruction_sets(CpuLevel level);

}  // namespace heddle
