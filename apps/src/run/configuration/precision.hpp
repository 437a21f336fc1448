#pragma once

#include <filesystem>
#include <heddle/core/base/cpu_level.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/parallel/communicator.hpp>

namespace heddle {

/// Decides train.precision = "auto": a run keeps the precision of its newest checkpoint; a new one computes in bfloat16
/// on devices and on processors that have instructions for it, otherwise in float32. `level` must be that of all ranks.
/// `run`: the run's directory; empty: none. Collective over `world`; rank 0 looks for the checkpoint. Kokkos must be
/// initialised.
void resolve_precision(Config& config, CpuLevel level, std::filesystem::path const& run = {},
                       Communicator const& world = Communicator::self());

}  // namespace heddle
