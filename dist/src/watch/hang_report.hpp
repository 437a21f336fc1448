#pragma once

#include <optional>
#include <string>
#include <vector>

#include "activity.hpp"

namespace heddle {

/// The states of all ranks when none makes progress.
struct HangEvidence {
  double limit_seconds = 0;
  std::vector<std::string> hosts;                   ///< of each rank
  std::vector<std::optional<RankStatus>> statuses;  ///< nothing for a rank that does not answer
};

/// The message that names the ranks that are missing in a verb, since when, and where the others wait: a line for all
/// ranks of a host with the same state.
std::string hang_report(HangEvidence const& evidence);

}  // namespace heddle
