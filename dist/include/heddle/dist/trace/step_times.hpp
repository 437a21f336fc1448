#pragma once

#include <cstdint>
#include <heddle/core/measure/step_trace.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

/// Measures the seconds of this rank's training steps, one at a time, and of those the ones in which it is in a
/// collective of a measured communicator or waits for a transfer. Collectives within collectives or waiting count once,
/// as the outer one. Steps, reading and waiting are reported to it as work, and it passes all work on to a trace.
class StepTimes final : public WorkObserver {
 public:
  /// Sums over the steps so far.
  struct Seconds {
    std::int64_t steps = 0;
    double all = 0;
    double first = 0;  ///< seconds of the first step alone
    double communicating = 0;
    double data = 0;  ///< reading and packing of samples

    double computing() const { return all - communicating; }
  };

  /// Steps, collectives and transfers are also added to `trace` while it records; null: none.
  explicit StepTimes(StepTrace* trace = nullptr);

  /// The world's backend, measured, as well as groups that are split off it. Not collective.
  std::shared_ptr<CommunicatorBackend> measured(std::shared_ptr<CommunicatorBackend> world) const;

  void begin(Work const& work) override;
  void end() noexcept override;

  Seconds seconds() const;
  /// The seconds of communication by "tensor.all_reduce"; their sum is Seconds::communicating.
  std::map<std::string, double> by_collective() const;

  struct State;

 private:
  /// A piece of work that has started.
  struct Open {
    Work work;
    std::int64_t began = 0;
    double communicated = 0;  ///< Seconds::communicating then
  };

  std::shared_ptr<State> state_;  ///< shared with the backends
  std::vector<Open> open_;
};

/// How well the ranks were used, by the POP methodology (https://pop-coe.eu/node/69): computing is every second of a
/// step outside of communication.
struct Efficiency {
  double load_balance = 1;   ///< mean over the maximum computing time
  double communication = 1;  ///< the maximum computing time over the time of the steps
  double parallel = 1;       ///< mean computing time over the time of the steps: the product of the two
  int slowest = 0;           ///< the rank with the least communication, so with the least waiting
  double waited_less = 0;    ///< seconds by which it waited less than the mean of the other ranks
};

/// The efficiency of ranks from their seconds in rank order: at least one rank and one step.
Efficiency efficiency_of(std::vector<StepTimes::Seconds> const& ranks);

}  // namespace heddle
