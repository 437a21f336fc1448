#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/config/update_rule.hpp>
#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/update.hpp>
#include <iterator>

namespace heddle {

namespace {

class ObservedUpdate final : public ObservedKernel<Update> {
 public:
  using ObservedKernel::ObservedKernel;

  RuleDefinition const& rule() const override {
    if (selected() == nullptr) {
      throw Error("an update rule without an implementation has no definition");
    }
    return selected()->rule();
  }
  void update(Execution& execution, UpdateCall const& call) override {
    pass<&Update::update>(execution, described("update", call), call);
  }
  void direct(Execution& execution, UpdateCall const& call) override {
    pass<&Update::direct>(execution, described("direction", call), call);
  }

 private:
  static CallDescription described(std::string_view direction, UpdateCall const& call) {
    double kept = 0;
    for (Tensor const& each : call.state) {
      kept += each.empty() ? 0 : static_cast<double>(each.size());
    }
    return {.direction = direction,
            .variant = "",
            .extents = fmt::format("{} elements", call.value.size()),
            .dtype = call.value.dtype(),
            .cost = cost(call.problem(), static_cast<double>(call.value.size()), kept)};
  }
};

/// Throws ConfigError for a key under which a checkpoint cannot keep a tensor beside a parameter's value.
void require_storable(RuleDefinition const& rule, std::vector<std::string> const& keys) {
  for (std::string const& key : keys) {
    if (key.empty() || key == "value" || key.front() == '.' || key.find('/') != key.npos ||
        std::ranges::count(keys, key) > 1) {
      throw ConfigError(
          "the update rule {} keeps a tensor under the key \"{}\"; expected a key of its own for each, such "
          "as \"{}.momentum\"",
          rule.name, key, rule.name);
    }
  }
}

}  // namespace

std::string describe(UpdateProblem const& problem) {
  return fmt::format("{} of {}", problem.rule, name_of(problem.dtype));
}

Cost cost(UpdateProblem const& problem, double elements, double state_elements) {
  // The gradient is read; the value and the state are read and written.
  return {0, (3 * elements + 2 * state_elements) * static_cast<double>(size_of(problem.dtype))};
}

std::array<double, update_scalars::count> update_scalars_of(RuleDefinition const& rule, RuleOptions const& options,
                                                            UpdateStep const& step) {
  std::array<double, update_scalars::count> scalars{step.learning_rate, step.gradient_scale};
  if (rule.numbers) {
    std::ranges::copy(rule.numbers(options, step), scalars.begin() + update_scalars::numbers);
  }
  return scalars;
}

void Update::direct(Execution& /*execution*/, UpdateCall const& call) {
  throw Error("the update rule {} is not one of whole parameters", call.rule);
}

std::shared_ptr<Update> Update::observed(ObservedSelection<Update> selection) {
  return std::make_shared<ObservedUpdate>(std::move(selection));
}

std::vector<RuleDefinition> update_rules(KernelRegistries const& registries) {
  std::vector<RuleDefinition> rules;
  if (registries.registry(Update::operation) != nullptr) {
    for (auto const& entry : registries.of<Update>().entries()) {
      if (std::ranges::find(rules, entry.kernel->rule().name, &RuleDefinition::name) == rules.end()) {
        rules.push_back(entry.kernel->rule());
      }
    }
  }
  return rules;
}

RuleDefinition rule_definition(KernelRegistries const& registries, std::string const& name, std::string const& place) {
  std::vector<RuleDefinition> const rules = update_rules(registries);
  if (rules.empty()) {
    return {.name = name, .state = {name + ".first_moment", name + ".second_moment"}};
  }
  auto const found = std::ranges::find(rules, name, &RuleDefinition::name);
  if (found == rules.end()) {
    std::vector<std::string> names;
    std::ranges::transform(rules, std::back_inserter(names), &RuleDefinition::name);
    throw ConfigError("{} = \"{}\": there is no such update rule; {}", place, name,
                      nearest_or_all(name, names, "a rule of a plug-in in plugins.paths"));
  }
  require_storable(*found, found->state);
  return *found;
}

std::string implementation_prefix(KernelRegistries const& registries, RuleDefinition const& rule) {
  std::vector<RuleDefinition> const rules = update_rules(registries);
  if (rule.name.empty() || std::ranges::find(rules, rule.name, &RuleDefinition::name) != rules.end()) {
    throw ConfigError("{} registers an update rule '{}'; each needs a name of its own", registries.origin(), rule.name);
  }
  require_storable(rule, rule.state);
  return registries.origin() == "built-in" ? "" : rule.name + ".";
}

bool has_option(RuleDefinition const& rule, std::string const& name) {
  auto const named = [&](OptionDescription const& option) { return option.name == name; };
  return std::ranges::any_of(rule.options, named, &RuleOption::description) ||
         std::ranges::any_of(value_form_options(), named);
}

void check_options(RuleDefinition const& rule, Settings const& given) {
  std::vector<OptionDescription> known;
  std::vector<std::string> names;
  for (RuleOption const& option : rule.options) {
    known.push_back(option.description);
    names.push_back(option.description.name);
  }
  for (OptionDescription const& option : value_form_options()) {
    known.push_back(option);
  }
  for (auto const& [name, setting] : given) {
    if (!has_option(rule, name)) {
      throw ConfigError("{}: there is no key {} for the update rule {}; {}", setting.origin, setting.key, rule.name,
                        names.empty() ? "it takes no options" : nearest_or_all(name, names));
    }
  }
  LayerOptions(given, "optimizer").check(known);
}

RuleOptions option_values(RuleDefinition const& rule, Settings const& given) {
  check_options(rule, given);
  LayerOptions const options(given, "optimizer");
  RuleOptions values{};
  for (std::size_t index = 0; index < rule.options.size(); ++index) {
    auto const& [description, otherwise] = rule.options[index];
    values.at(index) = description.type == OptionDescription::Type::boolean
                           ? static_cast<double>(options.flag(description.name, otherwise != 0))
                           : options.number(description.name, otherwise);
  }
  return values;
}

std::vector<MatrixState> matrix_state(RuleDefinition const& rule, MatrixProblem const& problem) {
  if (rule.scope != RuleDefinition::Scope::matrices || !rule.matrices.state) {
    return {};
  }
  std::vector<MatrixState> state = rule.matrices.state(problem);
  std::vector<std::string> keys = rule.state;
  std::ranges::transform(state, std::back_inserter(keys), &MatrixState::key);
  require_storable(rule, keys);
  return state;
}

}  // namespace heddle
