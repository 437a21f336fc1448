#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <span>

namespace heddle {

namespace {

std::string first_names(std::vector<std::string> const& names) {
  constexpr std::size_t shown = 3;
  std::span<std::string const> const first = std::span(names).first(std::min(names.size(), shown));
  return fmt::format("{}{}", fmt::join(first, ", "), names.size() > shown ? ", …" : "");
}

bool has(ParameterGroup const& group, std::string const& name) {
  return std::ranges::any_of(group.parameters, [&](auto const& pattern) { return matches_pattern(pattern, name); });
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
  std::size_t const star = pattern.find('*');
  if (star == std::string_view::npos) {
    return pattern == name;
  }
  if (!name.starts_with(pattern.substr(0, star))) {
    return false;
  }
  // The text between two stars may be taken where it is first found.
  name.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  for (std::size_t next = pattern.find('*'); next != std::string_view::npos; next = pattern.find('*')) {
    std::size_t const found = name.find(pattern.substr(0, next));
    if (found == std::string_view::npos) {
      return false;
    }
    name.remove_prefix(found + next);
    pattern.remove_prefix(next + 1);
  }
  return name.ends_with(pattern);
}

UpdateRule update_rule(OptimizerConfig const& config, std::string const& name) {
  ParameterGroup const* found = nullptr;
  for (ParameterGroup const& group : config.groups) {
    if (!has(group, name)) {
      continue;
    }
    if (found != nullptr) {
      throw ConfigError(fmt::format(
          "{} has the parameter {}, which optimizer.group.{} has, too ({}); a parameter may be in one group",
          group.places.of("parameters"), name, found->name, found->places.of("parameters")));
    }
    found = &group;
  }
  return found != nullptr ? found->rule : UpdateRule{.weight_decay = config.weight_decay};
}

ParameterSet& assign_rules(OptimizerConfig const& config, ParameterSet& parameters) {
  for (Parameter& parameter : parameters.all()) {
    parameter.rule = update_rule(config, parameter.spec.name);
  }
  return parameters;
}

void require_patterns_match(OptimizerConfig const& config, std::vector<std::string> const& names) {
  for (ParameterGroup const& group : config.groups) {
    for (std::string const& pattern : group.parameters) {
      if (std::ranges::none_of(names, [&](auto const& name) { return matches_pattern(pattern, name); })) {
        throw ConfigError(
            fmt::format("{} has the pattern \"{}\", which no parameter's name matches; names are {} (`heddle inspect` "
                        "of a checkpoint lists them)",
                        group.places.of("parameters"), pattern, first_names(names)));
      }
    }
  }
}

void require_some_trained(OptimizerConfig const& config, std::vector<std::string> const& names) {
  if (std::ranges::all_of(names, [&](std::string const& name) { return update_rule(config, name).frozen; })) {
    std::vector<std::string> groups;
    for (ParameterGroup const& group : config.groups) {
      if (group.rule.frozen) {
        groups.push_back(group.places.of("frozen"));
      }
    }
    throw ConfigError(
        fmt::format("{} = true: every parameter of the model is frozen, so nothing would be trained; leave some out of "
                    "the patterns in `parameters`",
                    fmt::join(groups, " and ")));
  }
}

std::vector<RuledRange> ruled_ranges(ParameterSet const& parameters) {
  std::vector<RuledRange> ranges;
  for (Parameter const& parameter : parameters.all()) {
    if (ranges.empty() || !(ranges.back().rule == parameter.rule)) {
      std::int64_t const begin = ranges.empty() ? 0 : parameter.place.begin;
      if (!ranges.empty()) {
        ranges.back().range.end = begin;
      }
      ranges.push_back({{begin, begin}, parameter.rule});
    }
  }
  if (!ranges.empty()) {
    ranges.back().range.end = parameters.size();
  }
  return ranges;
}

}  // namespace heddle
