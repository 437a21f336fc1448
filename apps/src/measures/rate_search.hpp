#pragma once

#include <string>
#include <vector>

namespace heddle {

/// A step of a range test (Smith 2017): training in which the learning rate grows by the same factor in each step.
struct TriedRate {
  double rate = 0;
  double loss = 0;  ///< of the step's batch, before its update
};

/// The result of a range test.
struct RateSearch {
  std::vector<TriedRate> tried;  ///< the losses are means over neighbouring steps; up to one that is not finite
  double lowest = 0;             ///< the rate with the lowest loss
  double proposed = 0;           ///< for the peak of a schedule with a warm-up
  std::string reason = {};
  std::string doubt = {};  ///< why the test says little; "": it does not
};

/// Finds the rate to propose: a part of the one up to which the loss falls. Throws DataError for fewer than 20 steps.
RateSearch search_rate(std::vector<TriedRate> const& steps);

/// The losses over the rates, on a logarithmic axis, as SVG.
std::string draw(RateSearch const& search);

}  // namespace heddle
