#pragma once

#include <cstdint>
#include <heddle/core/config/options.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Setting::origin of an option that was not given: see resolve_rules.
inline constexpr char const* default_option = "default";

/// How a parameter is updated, as far as parameters may differ.
struct UpdateRule {
  std::string name = {};            ///< a registered rule; of a group "": [optimizer]'s
  Settings options = {};            ///< the rule's own, see RuleDefinition
  double learning_rate_factor = 1;  ///< of the schedule's learning rate
  double weight_decay = 0;
  bool frozen = false;               ///< never updated, not part of the gradient's norm, without a gradient
  std::int64_t frozen_until = 0;     ///< frozen in this many of the run's first updates
  bool zero_last_row = false;        ///< each update sets the last index of axis 0 to zero
  bool averaged = false;             ///< an average of its values is kept: optimizer.average
  std::int64_t averaged_values = 0;  ///< earlier values that are kept for that, each under an averaged_key

  bool operator==(UpdateRule const&) const = default;
};

/// How a parameter's values stand for numbers w that an update rule trains: values = scale * w + offset. w has the
/// gradient times scale, and it is w that decays. So an import's parameters are trained as those of the other system,
/// of which they were made.
struct ValueForm {
  double scale = 1;
  double offset = 0;
};

/// The options `value_scale` and `value_offset`, which every rule takes.
std::vector<OptionDescription> value_form_options();
/// The form that a rule's options, which must have been checked, give.
ValueForm value_form(UpdateRule const& rule);
/// Whether a group says what its parameters' values stand for, as an import makes it. Such a group does not decide what
/// is trained beside adapters.
bool describes_values(UpdateRule const& group);

}  // namespace heddle
