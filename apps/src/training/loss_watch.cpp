#include "loss_watch.hpp"

#include <fmt/format.h>

#include <heddle/core/base/readable.hpp>

namespace heddle {

std::optional<std::string> LossWatch::add(std::int64_t step, double loss) {
  losses_.push_back(loss);
  sum_ += loss;
  if (losses_.size() > window) {
    sum_ -= losses_.front();
    losses_.pop_front();
  }
  if (losses_.size() < window) {
    return std::nullopt;
  }
  double const mean = sum_ / static_cast<double>(window);
  if (best_step_ < 0 || mean < best_) {
    best_ = mean;
    best_step_ = step;
  }
  risen_steps_ = mean > best_ + far ? risen_steps_ + 1 : 0;
  if (risen_steps_ != long_steps) {
    return std::nullopt;
  }
  return fmt::format(
      "the loss is {:.4f} on average, far above its best, {:.4f} at step {}: the learning rate may be too high, or its "
      "warm-up too short. --resume-from STEP goes back; while this start runs, the newest checkpoint up to step {} is "
      "kept",
      mean, best_, readable_count(best_step_), readable_count(best_step_));
}

std::optional<std::int64_t> LossWatch::risen_since() const {
  return risen_steps_ > 0 ? std::optional(best_step_) : std::nullopt;
}

}  // namespace heddle
