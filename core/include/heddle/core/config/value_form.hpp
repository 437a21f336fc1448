#pragma once

#include <heddle/core/config/options.hpp>
#include <heddle/core/config/update_rule.hpp>
#include <vector>

namespace heddle {

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
