#pragma once

#include <heddle/io/checkpoint/store.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The orders of a run's checkpoints: by their steps, or by a validation in the run's metrics.
inline constexpr char const* checkpoint_orders = "newest|loss|bleu";

/// The entries, oldest first, in this order: the newest, the lowest validation loss or the highest BLEU first. By a
/// validation only those whose step has one. Throws DataError where the run's metrics have none of any of them.
std::vector<CheckpointEntry> ordered(std::vector<CheckpointEntry> entries, std::string const& order);

}  // namespace heddle
