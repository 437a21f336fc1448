#pragma once

#include <cstdint>
#include <heddle/core/measure/step_trace.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

/// Measures the seconds of this rank's training steps, and of those the ones in which it is in a verb of a measured
/// communicator or waits for a transfer. Verbs within verbs or waiting count once, as the outer one. As an observer of
/// work it counts waiting, and passes everything on to a trace.
class StepTimes final : public WorkObserver {
 public:
  /// Sums over the steps so far.
  struct Seconds {
    std::int64_t steps = 0;
    double all = 0;
    double first = 0;  ///< of the first step alone
    double communicating = 0;
    double data = 0;  ///< reading and packing of samples

    double computing() const { return all - communicating; }
  };

  /// Steps, verbs and transfers are also added to `trace` while it records; null: none.
  explicit StepTimes(StepTrace* trace = nullptr);

  /// The world's backend, measured, as well as groups that are split off it. Not collective.
  std::shared_ptr<CommunicatorBackend> measured(std::shared_ptr<CommunicatorBackend> world) const;

  /// Measures a step, by its number, during its lifetime. One at a time.
  class Step {
   public:
    Step(StepTimes& times, std::int64_t step);
    ~Step();
    Step(Step const&) = delete;
    Step& operator=(Step const&) = delete;

   private:
    StepTimes& times_;
    std::string name_;
    std::int64_t began_;
  };
  /// The same for reading inside a step.
  class Data {
   public:
    explicit Data(StepTimes& times);
    ~Data();
    Data(Data const&) = delete;
    Data& operator=(Data const&) = delete;

   private:
    StepTimes& times_;
    std::int64_t began_;
    double communicated_;
  };

  void begin(Work const& work) override;
  void end() noexcept override;

  Seconds seconds() const;
  /// The seconds of communication by "tensor.all_reduce"; their sum is Seconds::communicating.
  std::map<std::string, double> by_verb() const;

  struct State;

 private:
  std::shared_ptr<State> state_;  ///< shared with the backends
  std::vector<Work> open_;
};

}  // namespace heddle
