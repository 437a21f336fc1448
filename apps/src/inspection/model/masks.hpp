#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "inspection/model/probe.hpp"

namespace heddle {

/// A mask for readers of the page: "window of 5 tokens before", "blocks of 2 tokens, 4 on each side, 1 global token";
/// that of describe() where it has no numbers.
std::string mask_words(AttentionMask const& mask);

/// The masks of a model's attention sublayers: [{"mask", "sublayers", "positions", "prefix", "matrix"}]. A cell of the
/// matrix stands for one or several positions on each axis; its value is the share of its pairs of a query (row) and a
/// key (column) that see each other.
boost::json::array masks_to_json(std::vector<AttentionSublayer> const& sublayers,
                                 std::vector<ObservedAttention> const& calls);

}  // namespace heddle
