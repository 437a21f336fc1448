#pragma once

#include <heddle/io/checkpoint/store.hpp>
#include <string>
#include <vector>

namespace heddle {

/// What orders the checkpoints of a run: how new they are, or a validation in the run's metrics.
inline constexpr char const* checkpoint_orders = "newest|loss|bleu";

/// The entries, oldest first, in this order: the newest, the lowest validation loss or the highest BLEU first. By a
/// validation only those whose step has one. Throws DataError where the run's metrics have none of any of them.
std::vector<CheckpointEntry> ordered(std::vector<CheckpointEntry> entries, std::string const& order);

}  // namespace heddle
