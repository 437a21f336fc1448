#include <algorithm>
#include <cmath>
#include <heddle/core/training/learning_rate.hpp>
#include <numbers>

namespace heddle {

double learning_rate(OptimizerConfig const& optimizer, std::int64_t step, std::int64_t total_steps) {
  double const peak = optimizer.learning_rate;
  auto const warmup = static_cast<double>(std::max<std::int64_t>(optimizer.warmup_steps, 1));
  double const update = static_cast<double>(step) + 1;
  if (step < optimizer.warmup_steps) {
    return peak * update / warmup;
  }
  // The progress grows from 0 at the end of the warm-up to 1 after the last update.
  auto const decay_steps = static_cast<double>(std::max<std::int64_t>(total_steps - optimizer.warmup_steps, 1));
  double const progress = std::min((update - static_cast<double>(optimizer.warmup_steps)) / decay_steps, 1.0);
  switch (optimizer.schedule) {
    case Schedule::inverse_sqrt:
      return peak * std::sqrt(warmup / update);
    case Schedule::cosine:
      return peak * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    case Schedule::linear:
      return peak * (1 - progress);
    case Schedule::constant:
      return peak;
  }
  return peak;
}

}  // namespace heddle
