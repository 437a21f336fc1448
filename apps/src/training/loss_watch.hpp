#pragma once

#include <cstddef>
#include <cstdint>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <optional>
#include <string>

namespace heddle {

/// Notices a loss that has risen far above its best and stays there: training has diverged, and no later checkpoint
/// leads back. Looks at means over `window` steps. Checkpoints keep its history: a run that resumes judges its loss as
/// if it had not been interrupted.
class LossWatch {
 public:
  static constexpr std::size_t window = 20;
  static constexpr double far = 1.0;              ///< nats per token: e times the perplexity
  static constexpr std::int64_t long_steps = 20;  ///< for which the mean must stay there

  /// Adds a step's loss. Returns a message, once for each rise.
  std::optional<std::string> add(std::int64_t step, double loss);
  /// The step of the best mean while the mean is far above it; nothing at other times.
  std::optional<std::int64_t> risen_since() const;

  LossHistory const& history() const { return history_; }
  /// Replaces everything that was added by what an earlier start had added.
  void restore(LossHistory const& history) { history_ = history; }

 private:
  LossHistory history_;
};

}  // namespace heddle
