#include <algorithm>
#include <heddle/core/config/update_rule.hpp>

namespace heddle {

std::vector<OptionDescription> value_form_options() {
  return {{.name = "value_scale",
           .type = OptionDescription::Type::number,
           .meaning = "values are value_scale * w + value_offset of numbers w that are trained",
           .above_min = true},
          OptionDescription::number("value_offset", "see value_scale")};
}

ValueForm value_form(UpdateRule const& rule) {
  LayerOptions const options(rule.options, "optimizer");
  return {.scale = options.number("value_scale", 1), .offset = options.number("value_offset", 0)};
}

bool describes_values(UpdateRule const& group) {
  return group.zero_last_row || std::ranges::any_of(value_form_options(), [&](OptionDescription const& option) {
           return group.options.contains(option.name);
         });
}

}  // namespace heddle
