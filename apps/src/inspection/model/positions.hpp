#pragma once

#include <boost/json.hpp>
#include <heddle/core/config/config.hpp>
#include <vector>

#include "inspection/model/probe.hpp"

namespace heddle {

/// cos(position * angle of pair) [positions, head_dim / 2]: the turn of each pair of columns (Su et al. 2021).
std::vector<double> rotary_table(std::int64_t positions, std::int64_t head_dim, double base);

/// The positional encodings of a model, as a forward pass used them.
struct ObservedPositions {
  std::vector<Tensor> added;  ///< EmbeddingCall::positions, one for each stack; empty tensors: none
  std::vector<AttentionSublayer> sublayers;
  std::vector<ObservedAttention> calls;  ///< of the sublayers: their biases
};

/// As matrices: [{"kind", "name", "row_name", "column_name", "first_column", "matrix", "note"}]. Stacks with the same
/// have one.
boost::json::array positions_to_json(Config const& config, ObservedPositions const& observed);

}  // namespace heddle
