#pragma once

#include <cstdint>
#include <heddle/core/tensor/tensor.hpp>
#include <span>
#include <string>
#include <vector>

namespace heddle {

struct Parameter;

/// A mixture's choices of experts, which its layer adds up over a step's training passes. Counts are integers, so that
/// their sums do not depend on the order.
struct ChoiceCounts {
  std::string layer;
  std::int64_t experts = 0;
  /// float64 [experts + 1] in kernels' memory: the choices of each expert, with those that were dropped; then the
  /// number of dropped ones.
  Tensor sums = {};
  Parameter* bias = nullptr;  ///< ExpertRoutingCall::bias; null: there is none
  double bias_rate = 0;
};

/// bias += rate * sign(mean of the choices - choices), for the choices of each expert in the whole global batch (Wang
/// et al. 2024). The same on every rank.
void balance(ChoiceCounts const& layer, std::span<double const> choices);

/// A step's choices in a layer.
struct ExpertLoad {
  std::string layer;
  std::vector<double> choices;  ///< of each expert, with those that were dropped
  double dropped = 0;

  void add(ExpertLoad const& more);
  double total() const;
  /// The entropy of the experts' shares of the choices, divided by the logarithm of their number: 1 where all are
  /// equal, 0 where one has all.
  double entropy() const;
};

}  // namespace heddle
