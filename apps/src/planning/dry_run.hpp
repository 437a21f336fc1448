#pragma once

#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>

namespace heddle {

struct Execution;

struct DryRun {
  Config const& config;
  Registries& registries;
  Execution& execution;
  std::filesystem::path directory;  ///< the run's
  int ranks = 1;                    ///< on one node
  bool new_data = false;
};

/// Prints what a run on so many ranks would do: its layout, what each rank holds, memory, communication, the time of a
/// step, and the checkpoint that it would go on from. Opens the data and verifies the checkpoint; starts and writes
/// nothing. Throws what training would throw for the configuration, the data and the checkpoint.
ExitCode dry_run(DryRun const& run);

}  // namespace heddle
