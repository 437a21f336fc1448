#include "parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/parameters/schedules.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <limits>

namespace heddle {
namespace {

constexpr char const* first_moment = "adam.first_moment";
constexpr char const* second_moment = "adam.second_moment";

/// Sums over the values of a tensor, which come in slabs.
struct ValueSums {
  double sum = 0;
  double squares = 0;
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();

  void add(std::vector<float> const& values) {
    for (float const value : values) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
      min = std::min(min, value);
      max = std::max(max, value);
    }
  }
};

}  // namespace

double squared_update_norm(ParameterValues const& values, UpdateRule const& rule, LastUpdate const& update) {
  auto const t = static_cast<double>(update.number);
  double const rate = update.learning_rate * rule.learning_rate_factor;
  LayerOptions const options(rule.options, "optimizer");  // complete in the configuration of a checkpoint
  double const correction1 = 1 - std::pow(options.number("beta1", 0.9), t);
  double const correction2 = 1 - std::pow(options.number("beta2", 0.98), t);
  double const epsilon = options.number("epsilon", 1e-9);
  double const decay = rule.name == "adamw" ? rate * rule.weight_decay : 0;
  double squares = 0;
  for (std::size_t i = 0; i < values.value.size(); ++i) {
    double const m = static_cast<double>(values.first_moment[i]) / correction1;
    double const v = static_cast<double>(values.second_moment[i]) / correction2;
    double const gained = rate * m / (std::sqrt(v) + epsilon);
    // The decay was of the value before the update, (value + gained) / (1 - decay).
    double const decayed = decay * (static_cast<double>(values.value[i]) + gained) / (1 - decay);
    squares += (gained + decayed) * (gained + decayed);
  }
  return squares;
}

WantedKeys keys_of_norms() {
  return {value_key, first_moment, second_moment};
}

boost::json::array parameter_norms(Checkpoint const& checkpoint, Config const& config) {
  std::int64_t const step = checkpoint.state().step;
  ScheduleRegistry schedules;
  register_schedules(schedules);
  bool const known =
      schedules.find(config.optimizer.schedule) != nullptr;  // a page of a run needs none of its plug-ins
  double const rate =
      known ? schedules.learning_rate(config.optimizer, step - 1, config.train.steps, checkpoint.state().plateaus) : 0;
  auto const& begins = checkpoint.contents().state_begins;
  boost::json::array norms;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    UpdateRule rule = update_rule(config.optimizer, tensor.name);
    bool const is_table = tensor.name == "output.weight" || tensor.name.ends_with("embedding.weight") ||
                          tensor.name.ends_with("positions.weight");
    rule.learning_rate_factor *=
        width_factor(config.optimizer, tensor.name, tensor.shape.size() == 2 && !is_table, false);
    if (!rule.name.starts_with("adam")) {
      rule.name = config.optimizer.rest;  // which Adam's state is of, if there is any
    }
    auto const begin = begins.find(tensor.name);
    std::int64_t const updates = begin == begins.end() ? step : step - begin->second;
    bool const updated = known && tensor.find(first_moment) && tensor.other_shapes.empty() && updates > 0 &&
                         !rule.frozen && rule.name.starts_with("adam");
    ValueSums sums;
    double update = 0;
    for (TensorSlice slab : slabs_of(tensor)) {
      std::vector<float> const value = checkpoint.read(slab);
      sums.add(value);
      if (updated) {
        slab.key = first_moment;
        std::vector<float> const first = checkpoint.read(slab);
        slab.key = second_moment;
        update += squared_update_norm({value, first, checkpoint.read(slab)}, rule, {rate, updates});
      }
    }
    boost::json::object norm{{"name", tensor.name},
                             {"elements", tensor.elements()},
                             {"norm", std::sqrt(sums.squares)},
                             {"max", std::max(std::abs(sums.min), std::abs(sums.max))}};
    if (updated) {
      norm["update"] = std::sqrt(update);
    }
    norms.push_back(std::move(norm));
  }
  return norms;
}

std::string parameter_table(Checkpoint const& checkpoint) {
  std::string table = fmt::format("{:<48} {:<18} {:>11} {:>11} {:>11} {:>11}\n", "parameter", "shape", "mean",
                                  "deviation", "min", "max");
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    if (tensor.elements() == 0) {
      continue;
    }
    ValueSums sums;
    for (TensorSlice const& slab : slabs_of(tensor)) {
      sums.add(checkpoint.read(slab));
    }
    auto const count = static_cast<double>(tensor.elements());
    double const mean = sums.sum / count;
    double const deviation = std::sqrt(std::max(sums.squares / count - mean * mean, 0.0));
    table += fmt::format("{:<48} {:<18} {:>11.4g} {:>11.4g} {:>11.4g} {:>11.4g}\n", tensor.name,
                         Shape(tensor.shape).to_string(), mean, deviation, sums.min, sums.max);
  }
  return table;
}

}  // namespace heddle
