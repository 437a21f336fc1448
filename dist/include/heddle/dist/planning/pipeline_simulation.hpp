#pragma once

#include <heddle/dist/pipeline/schedule.hpp>
#include <vector>

namespace heddle {

struct StageTimes {
  std::vector<double> forward;       ///< seconds of a micro-batch through each part
  std::vector<double> backward;      ///< by part; of the first part of a pass that is split
  double message = 0;                ///< seconds of an output on its way to the next virtual stage, in either direction
  std::vector<double> weights = {};  ///< by part: the second part of a backward pass; empty: none is split
};

struct SimulatedPipeline {
  double seconds = 0;          ///< from the start of the first pass to the end of the last on any stage
  std::vector<double> ends{};  ///< when each stage's last pass ends
  std::vector<double> busy{};  ///< seconds of each stage's passes, without waiting
  double bubble = 0;           ///< idle share of all stages' time
};

/// Runs the actions of every stage (training_actions) event by event: a pass starts when its stage is free and its
/// input has come. All stages have the same number of parts. `first_extra[stage]` is added to the stage's first pass of
/// each part: after an update weights are packed again.
SimulatedPipeline simulate_pipeline(std::vector<StageTimes> const& stages, std::int64_t micro_batches,
                                    std::vector<double> const& first_extra = {});

}  // namespace heddle
