#pragma once

#include <boost/json.hpp>
#include <vector>

#include "inspection/model/probe.hpp"

namespace heddle {

/// The masks of a model's attention sublayers: [{"mask", "sublayers", "positions", "prefix", "matrix"}]. A cell of the
/// matrix stands for one or several positions on each axis; its value is the share of its pairs of a query (row) and a
/// key (column) that see each other.
boost::json::array masks_to_json(std::vector<AttentionSublayer> const& sublayers,
                                 std::vector<ObservedAttention> const& calls);

}  // namespace heddle
