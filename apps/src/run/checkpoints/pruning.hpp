#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/io/checkpoint/store.hpp>
#include <vector>

namespace heddle {

/// Which checkpoints of a run remain.
struct PruningRule {
  std::int64_t keep = 1;        ///< the newest ones, at least 1
  std::int64_t keep_every = 0;  ///< also those whose step is a multiple of this; 0: none
};

struct PrunedCheckpoints {
  std::vector<CheckpointEntry> removed;  ///< oldest first
  std::vector<CheckpointEntry> kept;     ///< without those in which an error was found
  std::vector<std::string> notes;        ///< those that do not verify, with the reason: they are neither
};

/// Removes a run's checkpoints, except for those that the rule keeps and the best. All bytes of what stays are
/// verified; a checkpoint that does not verify is not counted and not removed. Holds the run's lock meanwhile; throws
/// ConfigError if a process trains there, and DataError if no checkpoint verifies. With `dry_run` it changes nothing
/// and needs no lock.
PrunedCheckpoints prune_checkpoints(std::filesystem::path const& run, PruningRule const& rule, bool dry_run);

}  // namespace heddle
