#pragma once

#include <cstdint>
#include <heddle/core/config/options.hpp>
#include <string>

namespace heddle {

/// Setting::origin of an option that was not given: see resolve_rules.
inline constexpr char const* default_option = "default";

/// How a parameter is updated, as far as parameters may differ.
struct UpdateRule {
  std::string name = {};            ///< a registered rule; of a group "": [optimizer]'s
  Settings options = {};            ///< the rule's own, see RuleDefinition
  double learning_rate_factor = 1;  ///< of the schedule's learning rate
  double weight_decay = 0;
  bool frozen = false;            ///< never updated, not part of the gradient's norm, without a gradient
  std::int64_t frozen_until = 0;  ///< frozen in this many of the run's first updates
  bool zero_last_row = false;     ///< each update sets the last index of axis 0 to zero

  bool operator==(UpdateRule const&) const = default;
};

}  // namespace heddle
