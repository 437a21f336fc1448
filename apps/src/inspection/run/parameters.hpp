#pragma once

#include <boost/json.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// The size of a parameter and of its last update.
struct ParameterNorm {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;
  double norm = 0;               ///< square root of the sum of squares
  double max = 0;                ///< absolute value
  std::optional<double> update;  ///< norm of the last update; none without moments and before the first step
};

/// The arrays of one parameter.
struct ParameterValues {
  std::span<float const> value;
  std::span<float const> first_moment{};
  std::span<float const> second_moment{};
};

/// The square of the norm of Adam's (Kingma & Ba 2015) last update, number `step` from 1, as the moments give it after
/// that update, with decoupled weight decay for adamw. Those of a tensor's parts add up to the whole's.
double squared_update_norm(ParameterValues const& values, OptimizerConfig const& optimizer, UpdateRule const& rule,
                           std::int64_t step, std::int64_t total_steps);

/// Reads one slab of a tensor at a time.
std::vector<ParameterNorm> parameter_norms(Checkpoint const& checkpoint, Config const& config);

boost::json::array to_json(std::vector<ParameterNorm> const& norms);

}  // namespace heddle
