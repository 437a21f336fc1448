#include "measured_backend.hpp"

#include <numeric>
#include <utility>

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

}  // namespace

MeasuredBackend::MeasuredBackend(std::shared_ptr<CommunicatorBackend> inner, std::shared_ptr<StepTimes::State> state,
                                 NamedGroup group)
    : DecoratedBackend(std::move(inner)),
      state_(std::move(state)),
      group_(state_->groups.emplace_back(MeasuredGroup{std::move(group), {}})) {}

void MeasuredBackend::before(VerbCall const& call) {
  call_ = MeasuredCall::of(call);
  element_bytes_ = static_cast<std::int64_t>(size_of(call.dtype));
  state_->enter();
}

void MeasuredBackend::before_exchange(Counts send, Counts /*receive*/) {
  call_.bytes = element_bytes_ * std::accumulate(send.begin(), send.end(), std::int64_t{0});
}

void MeasuredBackend::after() noexcept {
  state_->leave(group_, call_);
}

std::unique_ptr<TransferBackend> MeasuredBackend::around(VerbCall const& call,
                                                         std::unique_ptr<TransferBackend> transfer) {
  return std::make_unique<MeasuredTransfer>(std::move(transfer), state_, group_, MeasuredCall::of(call));
}

std::shared_ptr<CommunicatorBackend> MeasuredBackend::decorate(std::shared_ptr<CommunicatorBackend> part, int /*color*/,
                                                               std::string const& name) {
  NamedGroup group = group_of(*part, group_.group.members[static_cast<std::size_t>(rank())], name);
  return std::make_shared<MeasuredBackend>(std::move(part), state_, std::move(group));
}

}  // namespace heddle
