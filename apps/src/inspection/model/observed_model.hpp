#pragma once

#include <boost/json.hpp>
#include <heddle/core/config/config.hpp>
#include <vector>

#include "inference/probe.hpp"

namespace heddle {

/// cos(position * angle of pair) [positions, head_dim / 2]: the turn of each pair of columns (Su et al. 2021).
std::vector<double> rotary_table(std::int64_t positions, std::int64_t head_dim, double base);

/// A model's attention sublayers and positions, as a forward pass used them.
struct ObservedModel {
  std::vector<AttentionSublayer> sublayers;
  std::vector<ObservedAttention> calls;  ///< calls of the sublayers
  std::vector<Tensor> added;             ///< EmbeddingCall::positions, one for each stack; empty tensors: none
};

/// The positional encodings as matrices: [{"kind", "name", "row_name", "column_name", "first_column", "matrix",
/// "note"}]. Stacks with the same have one.
boost::json::array positions_to_json(Config const& config, ObservedModel const& observed);

/// The masks of the sublayers: [{"mask", "sublayers", "positions", "prefix", "matrix"}]. A cell of the matrix stands
/// for one or several positions on each axis; its value is the share of its pairs of a query (row) and a key (column)
/// that see each other.
boost::json::array masks_to_json(ObservedModel const& observed);

}  // namespace heddle
