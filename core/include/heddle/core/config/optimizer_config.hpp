#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/config/model_config.hpp>
#include <heddle/core/config/update_rule.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// `[optimizer.group."NAME"]`: parameters with a rule of their own.
struct ParameterGroup {
  std::string name;
  std::vector<std::string> parameters = {};  ///< patterns of their names, in which * matches any text
  UpdateRule rule = {};                      ///< its weight_decay is optimizer.weight_decay unless the group sets it
  KeyLocations places = {};

  bool operator==(ParameterGroup const&) const = default;
};

/// The average of the values that is kept beside them.
enum class Average : std::uint8_t { none, ema, lawa };
template <>
inline constexpr std::array<std::string_view, 3> value_names<Average>{"none", "ema", "lawa"};

struct OptimizerConfig {
  std::string name = "adam";              ///< a registered update rule
  std::string rest = {};                  ///< the rule of what a rule over matrices leaves; "": see assigned_rule
  double learning_rate = 0.0007;          ///< the peak
  std::string schedule = "inverse_sqrt";  ///< a registered schedule, see parameters/schedules.hpp
  std::int64_t warmup_steps = 4000;
  std::int64_t rewarm_at = 0;            ///< with rewarm_steps: the step after which the rate grows from 0 again
  std::int64_t rewarm_steps = 0;         ///< 0: it does not
  std::int64_t plateau_validations = 0;  ///< validations in a row without a better one that make a plateau; 0: never
  double plateau_factor = 0.5;           ///< of the schedule's rate, after each plateau
  double weight_decay = 0.0;
  double clip_norm = 0.0;  ///< 0: no clipping
  Average average = Average::none;
  double average_decay = 0.999;             ///< of "ema"
  std::int64_t average_every = 100;         ///< of "lawa": updates from one of the averaged values to the next
  std::int64_t average_count = 5;           ///< of "lawa": the averaged values
  double layer_decay = 1.0;                 ///< factor of the learning rate from each layer to the one below it
  Settings options = {};                    ///< the rule's own, see RuleDefinition, and the schedule's
  std::vector<ParameterGroup> groups = {};  ///< by name; no parameter is in two
  std::int64_t base_width = 0;              ///< d_model of the model whose learning rate this is; 0: this model's
  /// The number of layers of each stack, which layer_decay counts: parse_config takes it from [model].
  std::map<std::string, std::int64_t> layers = {};
  std::map<std::string, std::int64_t> widths = {};  ///< d_model of each stack, for base_width, likewise
  /// Patterns of those in no group that are trained, the rest being frozen; empty: all. Follows from [adapter].
  std::vector<std::string> trained = {};
  KeyLocations places{.section = "optimizer"};

  bool operator==(OptimizerConfig const&) const = default;
};

}  // namespace heddle
