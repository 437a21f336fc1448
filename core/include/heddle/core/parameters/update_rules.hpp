#pragma once

#include <heddle/core/config/optimizer_config.hpp>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/core/parameters/schedules.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Whether a name is of a pattern, in which each * stands for any text, also for none.
bool matches_pattern(std::string_view pattern, std::string_view name);

/// The rule for the parameter of this name: that of the group which has it, or [optimizer]'s, with its options. A group
/// that names no rule, or [optimizer]'s, has [optimizer]'s options except for those that it sets. With layer_decay the
/// factor of the learning rate falls from each layer of a stack to the one below it (ELECTRA: Clark et al. 2020): the
/// last layer, the stack's last norm and the output keep theirs; embeddings, and all else that is before the
/// layers, are the layer below the first, a table of several stacks that of the highest. Throws ConfigError, with file,
/// line and key, for a name that two groups have.
UpdateRule update_rule(OptimizerConfig const& config, std::string const& name);

/// The rule that updates the parameter of this name: update_rule's or, where that is one over matrices and the
/// parameter is not such a matrix (ParameterSpec::matrix), optimizer.rest, else [optimizer]'s if it updates elements,
/// else MatrixRule::rest, with [optimizer]'s options. Its learning rate has the width_factor. Throws as update_rule and
/// rule_definition do.
UpdateRule assigned_rule(OptimizerConfig const& config, KernelRegistries const& registries, std::string const& name,
                         bool is_matrix);

/// The factor of a parameter's learning rate with optimizer.base_width, so that a step changes what layers compute by
/// as much as in a model of that width (Yang et al. 2022, Everett et al. 2024). Where d_model is m times the base: 1 /
/// m for matrices of layers, experts' among them, and for tables that may be the output's; 1 / √m for matrices whose
/// rule is one over matrices and for the encoder's own table, whose rows are multiplied by √d_model; otherwise 1.
double width_factor(OptimizerConfig const& config, std::string const& name, bool is_matrix, bool over_matrices);

/// The state of a parameter of that shape, which the rule updates.
struct ParameterState {
  std::vector<std::string> keys;       ///< the rule's own, those of the whole matrix, and the average if there is one
  std::map<std::string, Shape> whole;  ///< the shapes of those of the whole matrix
};
ParameterState state_of(UpdateRule const& chosen, RuleDefinition const& rule, Shape const& shape);

/// Whether averages of the values are kept: optimizer.average, or the rule's own. The same on all ranks.
bool has_averages(OptimizerConfig const& config, KernelRegistries const& registries);

/// Whether no step of the run changes the parameter of this name: the `frozen` of its update_rule.
bool is_frozen(FrozenParameters const& frozen, std::string_view name);

/// Checks that the configured rules and the schedule are registered and have the options that are set, and sets the
/// options that are not, so that the configuration is complete. Throws ConfigError with file, line and key.
void resolve_rules(OptimizerConfig& config, KernelRegistries const& registries, ScheduleRegistry const& schedules);

MatrixProblem matrix_of(Parameter const& parameter, RuleDefinition const& rule, DType dtype);

/// Gives each parameter of the set its rule, and the state that the rule keeps for it, which begins with the run; those
/// that their rule unfreezes later wait without any. Called before the set is arranged, so that frozen parameters get
/// no gradient. Throws as update_rule and rule_definition do, and Error for a rounded parameter that would be trained.
void assign_rules(OptimizerConfig const& config, KernelRegistries const& registries, ParameterSet& parameters);

/// Lets the parameters wait that their rule unfreezes after more than `updates` of the run's updates, and no others:
/// one that no longer waits gets its gradient, and state that begins now.
void unfreeze(ParameterSet& parameters, KernelRegistries const& registries, std::int64_t updates);

/// Throws ConfigError, with file, line and key, for a group's pattern that matches none of `names`, those of a whole
/// model's parameters.
void require_patterns_match(OptimizerConfig const& config, std::vector<std::string> const& names);

/// Throws ConfigError, with file, line and key, if the groups freeze all of `names`, those of a whole model's
/// parameters, at the start of the run.
void require_some_trained(OptimizerConfig const& config, std::vector<std::string> const& names);

/// Neighbours in a set's buffers that are updated alike, with the padding that follows them; one parameter where its
/// rule is one of whole parameters.
struct RuleRange {
  IndexRange range;
  Parameter const* first;  ///< whose rule, state and state_begin are those of all
};
/// The whole gradient buffer, in as few ranges as possible; the set must be arranged and its rules assigned.
std::vector<RuleRange> rule_ranges(ParameterSet const& parameters);

}  // namespace heddle
