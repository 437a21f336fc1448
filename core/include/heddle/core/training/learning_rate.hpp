#pragma once

#include <cstdint>
#include <heddle/core/config/optimizer_config.hpp>

namespace heddle {

/// The learning rate of update `step` (0 for the first) of `total_steps`. It grows linearly through the warm-up, whose
/// last update has `optimizer.learning_rate`, and then follows the schedule: inverse_sqrt falls with the square root
/// of the update's number (Vaswani et al. 2017), cosine and linear reach 0 after the last update, constant stays.
double learning_rate(OptimizerConfig const& optimizer, std::int64_t step, std::int64_t total_steps);

}  // namespace heddle
