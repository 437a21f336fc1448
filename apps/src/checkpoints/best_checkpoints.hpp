#pragma once

#include <heddle/io/checkpoint/store.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The entries, oldest first, in this order: "newest" first, or those first whose step has the best value of a metric
/// in validation: "loss", "bleu", "bleu/SET" of a set in data.valid_sets, or "best" for the run's train.best_metric.
/// By a metric only those whose step has one. Throws DataError where the run's metrics have none of any of them.
std::vector<CheckpointEntry> ordered(std::vector<CheckpointEntry> entries, std::string const& order);

}  // namespace heddle
