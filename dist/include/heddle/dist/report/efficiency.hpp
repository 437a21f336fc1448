#pragma once

#include <heddle/dist/trace/step_times.hpp>
#include <string>
#include <vector>

namespace heddle {

/// How well the ranks were used, by the POP methodology (https://pop-coe.eu/node/69): computing is every second of a
/// step outside of communication.
struct Efficiency {
  double load_balance = 1;   ///< mean over the maximum computing time
  double communication = 1;  ///< the maximum computing time over the time of the steps
  double parallel = 1;       ///< mean computing time over the time of the steps: the product of the two
  int slowest = 0;           ///< the rank that communicated, and so waited, least
  double waited_less = 0;    ///< seconds, than the mean of the other ranks
};

/// The efficiency of ranks from their seconds in rank order: at least one rank and one step.
Efficiency efficiency_of(std::vector<StepTimes::Seconds> const& ranks);

}  // namespace heddle
