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

/// The last update of a parameter.
struct LastUpdate {
  double learning_rate;  ///< by the schedule
  std::int64_t number;   ///< 1 for the first that the parameter's state has seen
};

/// The square of the norm of Adam's (Kingma & Ba 2015) last update, as the moments give it after that update, with
/// decoupled weight decay for adamw. The squares of a tensor's parts add up to the whole tensor's.
double squared_update_norm(ParameterValues const& values, UpdateRule const& rule, LastUpdate const& update);

/// The keys that parameter_norms reads.
WantedKeys keys_of_norms();

/// The parameters of a checkpoint: [{"name", "elements", "norm", "max", "update"}], with the norms of the values and of
/// the last update, which is absent without moments and before their first step, and the largest absolute value.
boost::json::array parameter_norms(Checkpoint const& checkpoint, Config const& config);

/// A table in text: name, shape, mean, standard deviation and range of each parameter.
std::string parameter_table(Checkpoint const& checkpoint);

}  // namespace heddle
