#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/io/checkpoint/store.hpp>
#include <string>
#include <vector>

#include "run/metrics/measure.hpp"

namespace heddle {

/// The entries, oldest first, in this order: "newest" first, or those first whose step has the best value of a metric
/// in validation: "loss", "bleu", "bleu/SET" of a set in data.valid_sets, or "best" for the run's train.best_metric.
/// By a metric only those whose step has one, on the validation set of the newest value. Throws DataError where the
/// run's metrics have none of any of them, or where it is not known whether a higher value is better.
std::vector<CheckpointEntry> ordered(std::vector<CheckpointEntry> entries, std::string const& order);

/// The measure by which a run chooses its best checkpoint, as its report says: the loss where that does not.
Measure deciding_measure(std::filesystem::path const& run);

/// The best value of a measure in the metrics of the run that has these checkpoints, on the validation set with this
/// digest, up to the step `newest`, of the steps whose checkpoint is there; that of step 0 if there is none.
BestValue best_with_checkpoint(std::filesystem::path const& checkpoints, Measure const& measure,
                               std::string const& digest, std::int64_t newest);

}  // namespace heddle
