#include "loss_watch.hpp"

#include <fmt/format.h>

#include <cmath>
#include <heddle/core/base/readable.hpp>
#include <numeric>

namespace heddle {

LossWatch::LossWatch(std::int64_t vocabulary, std::int64_t warmup_steps)
    : uniform_(std::log(static_cast<double>(vocabulary))), warmup_steps_(warmup_steps) {}

std::optional<double> LossWatch::mean() const {
  std::vector<double> const& recent = history_.recent;
  return recent.size() < window
             ? std::nullopt
             : std::optional(std::accumulate(recent.begin(), recent.end(), 0.0) / static_cast<double>(recent.size()));
}

std::optional<std::string> LossWatch::add(std::int64_t step, double loss) {
  std::vector<double>& recent = history_.recent;
  recent.push_back(loss);
  if (recent.size() > window) {
    recent.erase(recent.begin(), recent.end() - window);
  }
  auto const mean = this->mean();
  if (!mean) {
    return std::nullopt;
  }
  useless_steps_ = step > warmup_steps_ && *mean > uniform_ + far ? useless_steps_ + 1 : 0;
  auto const risen = rise(step, *mean);
  return risen || useless_steps_ != long_steps || history_.risen_steps >= long_steps ? risen : describe_useless(*mean);
}

std::optional<std::string> LossWatch::rise(std::int64_t step, double mean) {
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

std::string LossWatch::describe_useless(double mean) const {
  return fmt::format(
      "the loss is {:.4f} on average over {} steps, far above {:.4f}, that of a model that gives all tokens of the "
      "vocabulary the same probability: this model is worse than none. The learning rate may be too high, or its "
      "warm-up too short",
      mean, window, uniform_);
}

std::optional<std::string> LossWatch::at_end() const {
  auto const mean = this->mean();
  if (mean && *mean > uniform_ + far) {
    return describe_useless(*mean);
  }
  if (mean && history_.risen_steps >= long_steps) {
    return fmt::format("the loss ended at {:.4f} on average, far above its best, {:.4f} at step {}", *mean,
                       history_.best_mean, readable_count(history_.best_step));
  }
  return std::nullopt;
}

std::optional<std::int64_t> LossWatch::risen_since() const {
  return history_.risen_steps > 0 ? std::optional(history_.best_step) : std::nullopt;
}

}  // namespace heddle
