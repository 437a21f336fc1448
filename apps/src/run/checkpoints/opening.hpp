#pragma once

#include <cstdint>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The user's choice of one checkpoint, or of several to average.
struct CheckpointChoice {
  std::string checkpoint;             ///< a run's directory, its checkpoints directory, or one checkpoint's
  std::string which = "auto";         ///< "best", "last", or "auto": the best where there is one, else the last
  std::string adapter = {};           ///< a run whose adapters are used on `checkpoint`, which must be its base
  std::int64_t average = 1;           ///< the number of a run's checkpoints whose parameters are averaged
  std::string average_by = "newest";  ///< the first ones in this order: "newest", "best", "bleu" (see ordered)
  bool attach_base = true;  ///< false: frozen parameters that a checkpoint leaves to its base are not looked for
};

struct OpenedCheckpoints {
  std::vector<Checkpoint> checkpoints;
  std::vector<std::string> skipped;  ///< messages about those that do not verify, and about a best one that is missing
};
/// The checkpoints that `choice` names, verified as far as these keys need it; the first one's configuration is used.
/// Throws DataError if none is left, or fewer than are to be averaged; UsageError for an impossible choice. Rank 0
/// chooses; collective over `world`. `verification` is for a place with one checkpoint: from several the first that
/// verifies is taken, which shows at opening. One that is removed before it is open was not there.
OpenedCheckpoints open_checkpoints(CheckpointChoice const& choice, WantedKeys const& keys = {value_key},
                                   Communicator const& world = Communicator::self(),
                                   Verification verification = Verification::at_opening);

}  // namespace heddle
