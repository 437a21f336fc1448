#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <optional>

#include "report/verbosity.hpp"

namespace heddle {

struct Execution;

/// The run, and its directory and options.
struct DryRun {
  Config const& config;
  Registries& registries;
  Execution& execution;
  std::filesystem::path directory;            ///< the run's
  int ranks = 1;                              ///< on one node
  std::optional<std::int64_t> resume_from{};  ///< the step to go back to
  bool new_data = false;
  Verbosity verbosity = Verbosity::normal;
};

/// Prints what a run on `ranks` ranks would do: its layout, what each rank holds, memory, communication, the time of a
/// step, and the checkpoint from which it would resume; if quiet only whether the memory suffices and the checkpoint,
/// if verbose also the configuration. Opens the data and verifies the checkpoint; starts and writes nothing. Throws
/// what training would throw for the configuration, the data and the checkpoint, and if a single rank needs more memory
/// than this machine has.
ExitCode dry_run(DryRun const& run);

}  // namespace heddle
