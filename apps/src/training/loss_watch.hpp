#pragma once

#include <cstddef>
#include <cstdint>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <limits>
#include <optional>
#include <string>

namespace heddle {

/// Notices a loss that has risen far above its best and stays there: training has diverged, and no later checkpoint
/// leads back; and one that stays far above that of a model which gives all tokens the same probability. Looks at means
/// over `window` steps. Checkpoints keep its history: a run that resumes judges its loss as if it had not been
/// interrupted.
class LossWatch {
 public:
  static constexpr std::size_t window = 20;
  static constexpr double far = 1.0;              ///< nats per token: e times the perplexity
  static constexpr std::int64_t long_steps = 20;  ///< for which the mean must stay there

  /// Has no opinion of losses by themselves.
  LossWatch() = default;
  /// For a model that predicts one of `vocabulary` tokens. During the warm-up its loss may still be that of random
  /// weights.
  LossWatch(std::int64_t vocabulary, std::int64_t warmup_steps);

  /// Adds a step's loss. Returns a message, once for each rise, and once in a start where the loss stays too high.
  std::optional<std::string> add(std::int64_t step, double loss);
  /// A message if the latest losses are too high: the trained model is of no use.
  std::optional<std::string> at_end() const;
  /// The step of the best mean while the mean is far above it; nothing at other times.
  std::optional<std::int64_t> risen_since() const;

  LossHistory const& history() const { return history_; }
  /// Replaces everything that was added by what an earlier start had added.
  void restore(LossHistory const& history) { history_ = history; }

 private:
  /// The mean of the latest losses; nothing while they are fewer than a window.
  std::optional<double> mean() const;
  std::optional<std::string> rise(std::int64_t step, double mean);
  std::string describe_useless(double mean) const;

  LossHistory history_;
  double uniform_ = std::numeric_limits<double>::infinity();  ///< the loss of equal probabilities
  std::int64_t warmup_steps_ = 0;
  std::int64_t useless_steps_ = 0;  ///< the latest steps after the warm-up whose mean was far above it
};

}  // namespace heddle
