#include "parameters.hpp"

#include <algorithm>
#include <cmath>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/core/training/learning_rate.hpp>

namespace heddle {

double squared_update_norm(ParameterValues const& values, OptimizerConfig const& optimizer, UpdateRule const& rule,
                           std::int64_t step, std::int64_t total_steps) {
  auto const t = static_cast<double>(step);
  double const rate = learning_rate(optimizer, step - 1, total_steps) * rule.learning_rate_factor;
  double const correction1 = 1 - std::pow(optimizer.beta1, t);
  double const correction2 = 1 - std::pow(optimizer.beta2, t);
  double const decay = optimizer.name == OptimizerName::adamw ? rate * rule.weight_decay : 0;
  double squares = 0;
  for (std::size_t i = 0; i < values.value.size(); ++i) {
    double const m = static_cast<double>(values.first_moment[i]) / correction1;
    double const v = static_cast<double>(values.second_moment[i]) / correction2;
    double const gained = rate * m / (std::sqrt(v) + optimizer.epsilon);
    // The decay was of the value before the update, (value + gained) / (1 - decay).
    double const decayed = decay * (static_cast<double>(values.value[i]) + gained) / (1 - decay);
    squares += (gained + decayed) * (gained + decayed);
  }
  return squares;
}

namespace {

/// Adds up the norms of a parameter, slab by slab.
ParameterNorm norm_of(Checkpoint const& checkpoint, TensorInfo const& tensor, Config const& config) {
  std::int64_t const step = checkpoint.state().step;
  UpdateRule const rule = update_rule(config.optimizer, tensor.name);
  bool const updated = tensor.has_moments && step > 0 && !rule.frozen;
  ParameterNorm norm{tensor.name, tensor.shape, tensor.elements(), 0, 0, std::nullopt};
  double squares = 0;
  double update = 0;
  for (TensorSlice const& slab : slabs_of(tensor)) {
    std::vector<float> const value = checkpoint.read(slab);
    for (float const each : value) {
      double const size = std::abs(static_cast<double>(each));
      squares += size * size;
      norm.max = std::max(norm.max, size);
    }
    if (updated) {
      auto const moment = [&](TensorPart part) {
        TensorSlice of_moment = slab;
        of_moment.part = part;
        return checkpoint.read(of_moment);
      };
      auto const first = moment(TensorPart::first_moment);
      auto const second = moment(TensorPart::second_moment);
      update += squared_update_norm({value, first, second}, config.optimizer, rule, step, config.train.steps);
    }
  }
  norm.norm = std::sqrt(squares);
  if (updated) {
    norm.update = std::sqrt(update);
  }
  return norm;
}

}  // namespace

std::vector<ParameterNorm> parameter_norms(Checkpoint const& checkpoint, Config const& config) {
  std::vector<ParameterNorm> norms;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    norms.push_back(norm_of(checkpoint, tensor, config));
  }
  return norms;
}

boost::json::array to_json(std::vector<ParameterNorm> const& norms) {
  boost::json::array array;
  for (ParameterNorm const& norm : norms) {
    boost::json::object entry{{"name", norm.name},
                              {"shape", boost::json::value_from(norm.shape)},
                              {"elements", norm.elements},
                              {"norm", norm.norm},
                              {"max", norm.max}};
    if (norm.update) {
      entry["update"] = *norm.update;
    }
    array.push_back(std::move(entry));
  }
  return array;
}

}  // namespace heddle
