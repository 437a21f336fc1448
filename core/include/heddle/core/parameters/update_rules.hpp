#pragma once

#include <heddle/core/config/optimizer_config.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Whether a name is of a pattern, in which each * stands for any text, also for none.
bool matches_pattern(std::string_view pattern, std::string_view name);

/// The rule for the parameter of this name: that of the group which has it, or [optimizer]'s. Throws ConfigError, with
/// file, line and key, for a name that two groups have.
UpdateRule update_rule(OptimizerConfig const& config, std::string const& name);

/// Gives each parameter of the set its rule, and returns the set. Throws as update_rule does.
ParameterSet& assign_rules(OptimizerConfig const& config, ParameterSet& parameters);

/// Throws ConfigError, with file, line and key, for a group's pattern that matches none of `names`, those of a whole
/// model's parameters.
void require_patterns_match(OptimizerConfig const& config, std::vector<std::string> const& names);

/// Throws ConfigError, with file, line and key, if the groups freeze all of `names`, those of a whole model's
/// parameters.
void require_some_trained(OptimizerConfig const& config, std::vector<std::string> const& names);

/// Neighbours in a set's buffers that are updated alike, with the padding that follows them.
struct RuledRange {
  IndexRange range;
  UpdateRule rule;
};
/// The whole buffers, in as few ranges as possible; the set must be arranged and its rules assigned.
std::vector<RuledRange> ruled_ranges(ParameterSet const& parameters);

}  // namespace heddle
