#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/config/update_rule.hpp>
#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <map>
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

/// The number of layers between a parameter and its stack's output, of which the embeddings are below all.
std::int64_t layers_above(std::map<std::string, std::int64_t> const& layers, std::string const& name) {
  constexpr std::string_view in_layers = "layers.";
  std::size_t const dot = std::min(name.find('.'), name.size() - 1);
  auto const stack = layers.find(name.substr(0, dot));
  std::string const rest = name.substr(dot + 1);
  if (stack == layers.end()) {  // of no stack, or of several
    auto const count = [](auto const& entry) { return entry.second; };
    return name.starts_with("embedding.") && !layers.empty() ? count(*std::ranges::max_element(layers, {}, count)) : 0;
  }
  if (rest.starts_with(in_layers)) {
    return stack->second - 1 - std::stoll(rest.substr(in_layers.size()));
  }
  return rest.starts_with("norm.") ? 0 : stack->second;
}

/// A group's rule, completed by [optimizer]'s.
UpdateRule rule_of(OptimizerConfig const& config, ParameterGroup const& group) {
  UpdateRule rule = group.rule;
  if (rule.name.empty() || rule.name == config.name) {
    rule.name = config.name;
    rule.options.insert(config.options.begin(), config.options.end());
  }
  return rule;
}

/// The name of the rule for the parameters that are not matrices, beside this rule over matrices.
std::string rest_of(OptimizerConfig const& config, KernelRegistries const& registries, RuleDefinition const& rule) {
  std::vector<std::string> over_elements;
  for (RuleDefinition const& known : update_rules(registries)) {
    if (known.scope == RuleDefinition::Scope::elements) {
      over_elements.push_back(known.name);
    }
  }
  auto const known = [&](std::string const& name) { return std::ranges::count(over_elements, name) > 0; };
  if (!config.rest.empty() && !known(config.rest)) {
    throw ConfigError("{} = \"{}\": expected a rule that updates any elements; {}", config.places.of("rest"),
                      config.rest, nearest_or_all(config.rest, over_elements, "a rule of a plug-in in plugins.paths"));
  }
  return !config.rest.empty() ? config.rest : known(config.name) ? config.name : rule.matrices.rest;
}

/// Adds the options of something else that [optimizer] names under `key`, and that name, for messages.
void add_options(RuleDefinition& rule, std::string const& key, std::string const& name,
                 std::vector<RuleOption> const& options) {
  if (options.empty()) {
    return;
  }
  rule.name += fmt::format(" with {} (optimizer.{})", name, key);
  for (RuleOption const& option : options) {
    if (!has_option(rule, option.description.name)) {
      rule.options.push_back(option);
    }
  }
}

bool averages_itself(RuleDefinition const& rule) {
  return std::ranges::count(rule.state, average_key) > 0;
}

/// Refuses what does not go with a rule that averages the values itself.
void check_averages(OptimizerConfig const& config, KernelRegistries const& registries) {
  std::vector<std::string> names{config.name, config.rest};
  std::ranges::transform(config.groups, std::back_inserter(names), [](auto const& group) { return group.rule.name; });
  std::erase_if(names, [](std::string const& name) { return name.empty(); });
  auto const own = [&](std::string const& name) { return averages_itself(rule_definition(registries, name, "")); };
  auto const averaging = std::ranges::find_if(names, own);
  if (averaging == names.end()) {
    return;
  }
  if (!std::ranges::all_of(names, own)) {
    throw ConfigError(
        "{}: {} averages the parameters itself and must be the only update rule, of [optimizer] and of its groups, but "
        "{} is one, too",
        config.places.of("name"), *averaging, *std::ranges::find_if_not(names, own));
  }
  if (config.average != Average::none) {
    throw ConfigError("{} = \"{}\": {} averages the parameters itself; leave it out", config.places.of("average"),
                      name_of(config.average), *averaging);
  }
  if (config.schedule != "constant") {
    throw ConfigError("{} = \"{}\": {} needs no schedule; expected \"constant\", with optimizer.warmup_steps",
                      config.places.of("schedule"), config.schedule, *averaging);
  }
  for (auto const& [key, value] :
       {std::pair{"rewarm_steps", config.rewarm_steps}, {"plateau_validations", config.plateau_validations}}) {
    if (value > 0) {
      throw ConfigError("{} = {}: {} needs a rate that stays constant after its warm-up; leave it out",
                        config.places.of(key), value, *averaging);
    }
  }
}

void give_state(Parameter& parameter, RuleDefinition const& rule) {
  ParameterState state;
  if (!parameter.frozen()) {
    state = state_of(parameter.rule, rule, parameter.global_shape());
  }
  parameter.state = std::move(state.keys);
  parameter.whole_state = std::move(state.whole);
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
      throw ConfigError(
          "{} has the parameter {}, which optimizer.group.{} has, too ({}); a parameter may be in one group",
          group.places.of("parameters"), name, found->name, found->places.of("parameters"));
    }
    found = &group;
  }
  UpdateRule rule =
      found != nullptr
          ? rule_of(config, *found)
          : UpdateRule{.name = config.name, .options = config.options, .weight_decay = config.weight_decay};
  if ((found == nullptr || describes_values(found->rule)) && !config.trained.empty()) {
    rule.frozen = std::ranges::none_of(config.trained,
                                       [&](std::string const& pattern) { return matches_pattern(pattern, name); });
  }
  rule.averaged = config.average != Average::none;
  rule.averaged_values = config.average == Average::lawa ? config.average_count : 0;
  if (config.layer_decay != 1) {
    rule.learning_rate_factor *= std::pow(config.layer_decay, layers_above(config.layers, name));
  }
  return rule;
}

UpdateRule assigned_rule(OptimizerConfig const& config, KernelRegistries const& registries, std::string const& name,
                         bool is_matrix) {
  UpdateRule rule = update_rule(config, name);
  RuleDefinition definition = rule_definition(registries, rule.name, config.places.of("name"));
  bool const over_matrices = definition.scope == RuleDefinition::Scope::matrices;
  rule.learning_rate_factor *= width_factor(config, name, is_matrix, over_matrices);
  if (over_matrices && !is_matrix) {
    rule.name = rest_of(config, registries, definition);
    if (rule.name == config.name) {
      rule.options = config.options;  // the group's are those of the rule over matrices
    } else {
      rule.options.insert(config.options.begin(), config.options.end());
    }
    definition = rule_definition(registries, rule.name, config.places.of("rest"));
  }
  // Options of other parameters' rules and of the schedule, which resolve_rules has checked.
  std::erase_if(rule.options, [&](auto const& option) { return !has_option(definition, option.first); });
  return rule;
}

double width_factor(OptimizerConfig const& config, std::string const& name, bool is_matrix, bool over_matrices) {
  if (config.base_width == 0 || config.widths.empty()) {
    return 1;
  }
  auto const width = [](auto const& entry) { return entry.second; };
  auto const stack = config.widths.find(name.substr(0, name.find('.')));
  auto const found = stack != config.widths.end() ? stack : std::ranges::max_element(config.widths, {}, width);
  double const more = static_cast<double>(found->second) / static_cast<double>(config.base_width);
  bool const is_table = name == "output.weight" || name.ends_with("embedding.weight");
  auto const ends_as = [&](std::string_view matrix) {
    return name.ends_with(fmt::format(".mixture_of_experts.{}.weight", matrix));
  };
  bool const is_of_experts = ends_as("gate") || ends_as("up") || ends_as("down");
  if (is_matrix ? over_matrices : name == "encoder.embedding.weight") {
    return 1 / std::sqrt(more);
  }
  return is_matrix || is_of_experts || is_table ? 1 / more : 1;
}

ParameterState state_of(UpdateRule const& chosen, RuleDefinition const& rule, Shape const& shape) {
  ParameterState state{rule.state, {}};
  if (rule.scope == RuleDefinition::Scope::matrices) {
    MatrixProblem const problem{DType::float32, shape[0], shape[1], option_values(rule, chosen.options)};
    for (MatrixState const& each : matrix_state(rule, problem)) {
      state.keys.push_back(each.key);
      state.whole[each.key] = each.shape;
    }
  }
  if (chosen.averaged) {
    state.keys.emplace_back(average_key);
  }
  for (std::int64_t index = 0; index < chosen.averaged_values; ++index) {
    state.keys.push_back(averaged_key(index));
  }
  return state;
}

bool has_averages(OptimizerConfig const& config, KernelRegistries const& registries) {
  return config.average != Average::none ||
         averages_itself(rule_definition(registries, config.name, config.places.of("name")));
}

bool is_frozen(FrozenParameters const& frozen, std::string_view name) {
  auto const has_it = [&](std::string const& pattern) { return matches_pattern(pattern, name); };
  return std::ranges::any_of(frozen.frozen, has_it) ||
         (!frozen.trained.empty() && std::ranges::none_of(frozen.trained, has_it));
}

void resolve_rules(OptimizerConfig& config, KernelRegistries const& registries, ScheduleRegistry const& schedules) {
  auto const definition = [&](std::string const& name, std::string const& place) {
    RuleDefinition rule = rule_definition(registries, name, place);
    if (rule.scope == RuleDefinition::Scope::matrices) {
      config.rest = rest_of(config, registries, rule);
      RuleDefinition const rest = rule_definition(registries, config.rest, config.places.of("rest"));
      add_options(rule, "rest", rest.name, rest.options);
    }
    return rule;
  };
  auto const resolve = [&](RuleDefinition const& rule, Settings& options) {
    check_options(rule, options);
    for (auto const& [description, value] : rule.options) {
      auto const [found, added] = options.try_emplace(description.name);
      Setting& setting = found->second;
      if (added) {
        setting = {value, default_option};
      }
      if (added && description.type == OptionDescription::Type::boolean) {
        setting.value = value != 0;
      }
      setting.value = *description.converted(setting.value);
    }
  };
  RuleDefinition whole = definition(config.name, config.places.of("name"));
  ScheduleEntry const& schedule = schedules.of(config);
  add_options(whole, "schedule", schedule.name, schedule.options);
  resolve(whole, config.options);
  for (ParameterGroup& group : config.groups) {
    std::string const place = group.places.of("name");
    if (std::string const& own = group.rule.name; !own.empty() && own != config.name) {
      RuleDefinition const rule = rule_definition(registries, own, place);
      if (rule.scope == RuleDefinition::Scope::matrices) {
        config.rest = rest_of(config, registries, rule);
      }
      resolve(rule, group.rule.options);
    } else {
      check_options(definition(config.name, place), group.rule.options);
    }
  }
  auto const over_matrices = [&](std::string const& name) {
    return rule_definition(registries, name, "").scope == RuleDefinition::Scope::matrices;
  };
  auto const in_group = [&](ParameterGroup const& group) {
    return !group.rule.name.empty() && over_matrices(group.rule.name);
  };
  check_averages(config, registries);
  bool const known = !update_rules(registries).empty();
  if (known && !config.rest.empty() && !over_matrices(config.name) && std::ranges::none_of(config.groups, in_group)) {
    throw ConfigError("{} = \"{}\" is for a rule over matrices, such as muon, and none is used; leave it out",
                      config.places.of("rest"), config.rest);
  }
}

MatrixProblem matrix_of(Parameter const& parameter, RuleDefinition const& rule, DType dtype) {
  Shape const& whole = parameter.global_shape();
  return {dtype, whole[0], whole[1], option_values(rule, parameter.rule.options)};
}

void assign_rules(OptimizerConfig const& config, KernelRegistries const& registries, ParameterSet& parameters) {
  std::map<std::string, RuleDefinition> rules;
  for (Parameter& parameter : parameters.all()) {
    parameter.rule = assigned_rule(config, registries, parameter.spec.name, parameter.spec.matrix);
    parameter.rule.frozen = parameter.rule.frozen || parameter.spec.balances;
    if (parameter.spec.rounded && !parameter.rule.frozen) {
      throw Error("parameter {}: a value in bfloat16 cannot be trained", parameter.spec.name);
    }
    std::string const& name = parameter.rule.name;
    if (!rules.contains(name)) {
      rules[name] = rule_definition(registries, name, config.places.of("name"));
    }
    RuleDefinition const& rule = rules[name];
    parameter.still_frozen = false;
    give_state(parameter, rule);
    bool const whole = !parameter.rule.frozen && rule.whole();
    bool const as_matrix = whole && rule.scope == RuleDefinition::Scope::matrices;
    parameter.spec.placement.owner = whole ? Placement::Owner::single : Placement::Owner::divided;
    parameter.matrix_cost =
        as_matrix ? std::max(1.0, rule.matrices.cost(matrix_of(parameter, rule, DType::float32)).operations) : 0;
    parameter.state_begin = 0;
  }
  unfreeze(parameters, registries, 0);
}

void unfreeze(ParameterSet& parameters, KernelRegistries const& registries, std::int64_t updates) {
  for (Parameter& parameter : parameters.all()) {
    bool const still_frozen = parameter.rule.frozen_until > updates;
    if (still_frozen != parameter.still_frozen) {
      parameter.still_frozen = still_frozen;
      give_state(parameter, rule_definition(registries, parameter.rule.name, "optimizer.name"));
      parameter.state_begin = still_frozen ? 0 : updates;
    }
  }
  parameters.bind_gradients();
}

void require_patterns_match(OptimizerConfig const& config, std::vector<std::string> const& names) {
  for (ParameterGroup const& group : config.groups) {
    for (std::string const& pattern : group.parameters) {
      if (std::ranges::none_of(names, [&](auto const& name) { return matches_pattern(pattern, name); })) {
        throw ConfigError(
            "{} has the pattern \"{}\", which no parameter's name matches; names are {} (`heddle inspect` "
            "of a checkpoint lists them)",
            group.places.of("parameters"), pattern, first_names(names));
      }
    }
  }
}

void require_some_trained(OptimizerConfig const& config, std::vector<std::string> const& names) {
  auto const is_frozen = [](UpdateRule const& rule) { return rule.frozen || rule.frozen_until > 0; };
  if (std::ranges::all_of(names, [&](std::string const& name) { return is_frozen(update_rule(config, name)); })) {
    std::vector<std::string> groups;
    for (ParameterGroup const& group : config.groups) {
      if (is_frozen(group.rule)) {
        groups.push_back(group.rule.frozen
                             ? group.places.of("frozen") + " = true"
                             : fmt::format("{} = {}", group.places.of("unfreeze_at"), group.rule.frozen_until));
      }
    }
    throw ConfigError(
        "{}: every parameter of the model is frozen, so nothing would be trained; leave some out of the "
        "patterns in `parameters`",
        fmt::join(groups, " and "));
  }
}

std::vector<RuleRange> rule_ranges(ParameterSet const& parameters) {
  std::vector<RuleRange> ranges;
  for (Parameter const* const parameter : parameters.trained()) {
    bool const alike = !ranges.empty() && !parameter->updated_whole() && !ranges.back().first->updated_whole() &&
                       ranges.back().first->rule == parameter->rule &&
                       ranges.back().first->state_begin == parameter->state_begin;
    if (alike) {
      ranges.back().range.end = parameter->place.end;
      continue;
    }
    std::int64_t const begin = ranges.empty() ? 0 : parameter->place.begin;
    if (!ranges.empty()) {
      ranges.back().range.end = begin;
    }
    ranges.push_back({{begin, parameter->place.end}, parameter});
  }
  if (!ranges.empty()) {
    ranges.back().range.end = parameters.gradient_size();
  }
  return ranges;
}

}  // namespace heddle
