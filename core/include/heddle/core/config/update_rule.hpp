#pragma once

namespace heddle {

/// How a parameter is updated, as far as parameters may differ.
struct UpdateRule {
  double learning_rate_factor = 1;  ///< of the schedule's learning rate
  double weight_decay = 0;
  bool frozen = false;  ///< never updated, and not part of the gradient's norm

  bool operator==(UpdateRule const&) const = default;
};

}  // namespace heddle
