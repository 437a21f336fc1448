#pragma once

#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>

#include "run/configuration/options.hpp"

namespace heddle {

struct Execution;

/// The run, on ranks of one node.
struct DryRun {
  TrainOptions const& options;
  Config const& config;  ///< with the options' overrides and plug-ins
  Registries& registries;
  Execution& execution;
  std::filesystem::path directory;  ///< the run's
};

/// Prints what a run on the options' number of ranks would do: its layout, what each rank holds, memory, communication,
/// the time of a step, and the checkpoint from which it would resume or whose parameters it would take; if quiet only
/// whether the memory suffices and the checkpoint, if verbose also the configuration. Opens the data and verifies the
/// checkpoint; starts and writes nothing. Throws what training would throw for the configuration, the data and the
/// checkpoint, and if a single rank needs more memory than this machine has.
ExitCode dry_run(DryRun const& run);

}  // namespace heddle
