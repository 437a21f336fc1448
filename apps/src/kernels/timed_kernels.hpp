#pragma once

#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/timings.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Equal calls of a training step.
struct TimedCall {
  std::string name;     ///< the method and its extents: "forward, 4096 x 512 x 2048"
  Cost cost;            ///< of one call
  double count = 0;     ///< the number of such calls in a step
  TimesByName seconds;  ///< the shortest time of a call
};

/// All calls of layers that select by the same key.
struct TimedProblem {
  std::string by_speed;  ///< the choice of `auto` without times
  std::vector<TimedCall> calls;

  /// Seconds of all calls, of the implementations that were timed in each.
  TimesByName total() const;
  /// The choice of `auto` with these times.
  std::string fastest() const;
};

/// The timed calls by operation and timing_key.
using TimedProblems = std::map<std::string, std::map<std::string, TimedProblem>>;

/// Makes a call by every implementation that supports it, several times, when such a call first occurs. The step that
/// makes the calls then continues with wrong numbers: only its calls count. Implementations of speed 0 are left out if
/// there are others, unless `all`.
class KernelTimer final : public KernelObserver {
 public:
  explicit KernelTimer(bool all) : all_(all) {}

  void observe(Execution& execution, KernelCall const& call) override;
  TimedProblems const& problems() const { return problems_; }

 private:
  TimesByName measure(Execution& execution, KernelCall const& call) const;

  bool all_;
  TimedProblems problems_;
};

}  // namespace heddle
