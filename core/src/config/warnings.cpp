#include <fmt/format.h>

#include <heddle/core/config/warnings.hpp>

namespace heddle {

std::vector<std::string> warnings_about(Config const& config) {
  std::vector<std::string> warnings;
  std::int64_t const warmup = config.optimizer.warmup_steps;
  std::int64_t const steps = config.train.steps;
  if (warmup == 0) {
    warnings.emplace_back(
        "optimizer.warmup_steps = 0: the first steps take the whole learning rate, with which Transformers often "
        "diverge; expected some hundreds of steps");
  }
  if (warmup > steps) {
    warnings.push_back(fmt::format(
        "optimizer.warmup_steps = {} is longer than the run, train.steps = {}: the learning rate grows up to the end "
        "and reaches only {:.2g} of optimizer.learning_rate = {}; expected a warm-up of some percent of the run",
        warmup, steps, static_cast<double>(steps) / static_cast<double>(warmup), config.optimizer.learning_rate));
  }
  return warnings;
}

}  // namespace heddle
