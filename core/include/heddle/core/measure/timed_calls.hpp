#pragma once

#include <heddle/core/operations/kernel.hpp>
#include <map>
#include <string>
#include <vector>

namespace heddle {

struct TimedWork {
  Cost cost;
  double seconds = 0;
  double first_seconds = 0;  ///< of the first call after an update, which packs weights again
  double spread = 0;         ///< share by which the median of the rounds was above the minimum
  double measured_at = 0;    ///< seconds since 1970; 0: not known
  double load = 0;           ///< load of each core by other processes during the measurement

  bool operator==(TimedWork const&) const = default;
};

/// Measured calls by kind (see kind_of in dist).
using TimedCalls = std::map<std::string, std::vector<TimedWork>>;

}  // namespace heddle
