#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "inspection/run/run_view.hpp"
#include "run/configuration/registration.hpp"

namespace heddle {

/// The samples of one step of a run.
struct WantedSamples {
  std::int64_t step = 0;               ///< from 1 on
  std::optional<std::int64_t> number;  ///< of the sample in the step's batch, from 0 on; none: all, without their texts
};

/// Lines about the samples: corpus, epoch, place in the corpus, tokens; of a single one also texts and tokens. Batches
/// are planned again from the newest checkpoint before the step, with the data and the configuration of `run`, so that
/// the data must be where the run had them. Batches that were skipped after that checkpoint, because a loss was not
/// finite, shift the steps after them. Throws as open_training_data does, ConfigError for a stream, and UsageError for
/// a step or a sample that the run does not have, and for a step between two checkpoints between which a validation has
/// ended a stage: no checkpoint says after which step.
std::string describe_samples(RunView const& run, PluginTrust const& trust, WantedSamples const& wanted);

}  // namespace heddle
