#include <utility>

#include "step_times_state.hpp"

namespace heddle {

namespace {

/// Measures during its lifetime.
class MeasuredScope {
 public:
  MeasuredScope(StepTimes::State& state, MeasuredGroup& group, MeasuredCall const& call)
      : state_(state), group_(group), call_(call) {
    state_.enter();
  }
  ~MeasuredScope() { state_.leave(group_, call_); }
  MeasuredScope(MeasuredScope const&) = delete;
  MeasuredScope& operator=(MeasuredScope const&) = delete;

 private:
  StepTimes::State& state_;
  MeasuredGroup& group_;
  MeasuredCall const& call_;
};

class MeasuredTransfer final : public TransferBackend {
 public:
  MeasuredTransfer(std::unique_ptr<TransferBackend> inner, std::shared_ptr<StepTimes::State> state,
                   MeasuredGroup& group, MeasuredCall const& call)
      : inner_(std::move(inner)),
        state_(std::move(state)),
        group_(group),
        call_(call),
        began_(state_->in_step && state_->traces() ? StepTrace::now() : 0) {
    call_.started = true;
  }
  ~MeasuredTransfer() override {
    if (!done_) {
      MeasuredScope const scope(*state_, group_, call_);
      inner_.reset();  // waits
    }
  }
  MeasuredTransfer(MeasuredTransfer const&) = delete;
  MeasuredTransfer& operator=(MeasuredTransfer const&) = delete;

  bool progress() override {
    MeasuredScope const scope(*state_, group_, call_);
    return ended(inner_->progress());
  }
  void wait() override {
    MeasuredScope const scope(*state_, group_, call_);
    inner_->wait();
    ended(true);
  }

 private:
  bool ended(bool done) {
    if (done && !done_) {
      done_ = true;
      state_->add_transfer(group_, call_, began_);
    }
    return done;
  }

  std::unique_ptr<TransferBackend> inner_;
  std::shared_ptr<StepTimes::State> state_;
  MeasuredGroup& group_;
  MeasuredCall call_;
  std::int64_t began_;
  bool done_ = false;
};

/// Measures how long this rank is in each verb, and waits for each transfer.
class MeasuredBackend final : public DecoratedBackend {
 public:
  MeasuredBackend(std::shared_ptr<CommunicatorBackend> inner, std::shared_ptr<StepTimes::State> state, NamedGroup group)
      : DecoratedBackend(std::move(inner), group),
        state_(std::move(state)),
        measured_(state_->groups.emplace_back(MeasuredGroup{std::move(group), {}})) {}

 protected:
  void before(VerbCall const& /*call*/) override { state_->enter(); }
  void after(VerbCall const& call) noexcept override { state_->leave(measured_, MeasuredCall::of(call)); }
  std::unique_ptr<TransferBackend> around(VerbCall const& call, std::unique_ptr<TransferBackend> transfer) override {
    return std::make_unique<MeasuredTransfer>(std::move(transfer), state_, measured_, MeasuredCall::of(call));
  }
  std::shared_ptr<CommunicatorBackend> decorate(std::shared_ptr<CommunicatorBackend> part, int /*color*/,
                                                NamedGroup group) override {
    return std::make_shared<MeasuredBackend>(std::move(part), state_, std::move(group));
  }

 private:
  std::shared_ptr<StepTimes::State> state_;
  MeasuredGroup& measured_;
};

}  // namespace

std::shared_ptr<CommunicatorBackend> StepTimes::measured(std::shared_ptr<CommunicatorBackend> world) const {
  NamedGroup group = world_group(*world);
  return std::make_shared<MeasuredBackend>(std::move(world), state_, std::move(group));
}

}  // namespace heddle
