#pragma once

#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/timings.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Calls of a training step that are alike.
struct TimedCall {
  std::string name;     ///< the method and its extents: "forward, 4096 x 512 x 2048"
  Cost cost;            ///< of one call
  double count = 0;     ///< how often the step makes it
  TimesByName seconds;  ///< the least that a call took
};

/// All calls of layers that select by one key.
struct TimedProblem {
  std::string by_speed;  ///< the one that `auto` takes without times
  std::vector<TimedCall> calls;

  /// Seconds of all calls, of the implementations that were timed in each.
  TimesByName total() const;
  /// The implementation that `auto` takes with these times.
  std::string fastest() const;
};

/// By operation and timing_key.
using TimedProblems = std::map<std::string, std::map<std::string, TimedProblem>>;

/// Has a call made by every implementation that supports it, some times over, the first time that such a call comes.
/// The step that makes the calls then goes on with wrong numbers: only its calls count. Implementations of speed 0 are
/// left out where there is another, unless `all`.
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
