#pragma once

#include "step_times_state.hpp"

namespace heddle {

/// Measures how long this rank is in each verb, and waits for each transfer.
class MeasuredBackend final : public DecoratedBackend {
 public:
  MeasuredBackend(std::shared_ptr<CommunicatorBackend> inner, std::shared_ptr<StepTimes::State> state,
                  NamedGroup group);

 protected:
  void before(VerbCall const& call) override;
  void before_exchange(Counts send, Counts receive) override;
  void after() noexcept override;
  std::unique_ptr<TransferBackend> around(VerbCall const& call, std::unique_ptr<TransferBackend> transfer) override;
  std::shared_ptr<CommunicatorBackend> decorate(std::shared_ptr<CommunicatorBackend> part, int color,
                                                std::string const& name) override;

 private:
  std::shared_ptr<StepTimes::State> state_;
  MeasuredGroup& group_;
  MeasuredCall call_;  ///< the verb in progress
  std::int64_t element_bytes_ = 0;
};

}  // namespace heddle
