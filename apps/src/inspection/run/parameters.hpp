#pragma once

#include <boost/json.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <span>
#include <string>

namespace heddle {

/// The arrays of one parameter.
struct ParameterValues {
  std::span<float const> value;
  std::span<float const> first_moment{};
  std::span<float const> second_moment{};
};

/// The square of the norm of Adam's (Kingma & Ba 2015) last update, number `step` from 1, as the moments give it after
/// that update, with decoupled weight decay for adamw. The squares of a tensor's parts add up to the whole tensor's.
double squared_update_norm(ParameterValues const& values, OptimizerConfig const& optimizer, UpdateRule const& rule,
                           std::int64_t step, std::int64_t total_steps);

/// The keys that parameter_norms reads.
WantedKeys keys_of_norms();

/// The parameters of a checkpoint: [{"name", "elements", "norm", "max", "update"}], with the norms of the values and of
/// the last update, which is absent without moments and before the first step, and the largest absolute value.
boost::json::array parameter_norms(Checkpoint const& checkpoint, Config const& config);

/// A table in text: name, shape, mean, standard deviation and range of each parameter.
std::string parameter_table(Checkpoint const& checkpoint);

}  // namespace heddle
