#include "loss_watch.hpp"

#include <fmt/format.h>

#include <heddle/core/base/readable.hpp>
#include <numeric>

namespace heddle {

std::optional<std::string> LossWatch::add(std::int64_t step, double loss) {
  std::vector<double>& recent = history_.recent;
  recent.push_back(loss);
  if (recent.size() > window) {
    recent.erase(recent.begin(), recent.end() - window);
  }
  if (recent.size() < window) {
    return std::nullopt;
  }
  double const mean = std::accumulate(recent.begin(), recent.end(), 0.0) / static_cast<double>(window);
  if (history_.best_step == 0 || mean < history_.best_mean) {
    history_.best_mean = mean;
    history_.best_step = step;
  }
  history_.risen_steps = mean > history_.best_mean + far ? history_.risen_steps + 1 : 0;
  if (history_.risen_steps != long_steps) {
    return std::nullopt;
  }
  std::string const best_step = readable_count(history_.best_step);
  return fmt::format(
      "the loss is {:.4f} on average, far above its best, {:.4f} at step {}: the learning rate may be too high, or its "
      "warm-up too short. --resume-from STEP goes back; the newest checkpoint up to step {} is kept until the loss is "
      "near its best again",
      mean, history_.best_mean, best_step, best_step);
}

std::optional<std::int64_t> LossWatch::risen_since() const {
  return history_.risen_steps > 0 ? std::optional(history_.best_step) : std::nullopt;
}

}  // namespace heddle
