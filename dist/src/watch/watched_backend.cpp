#include <heddle/core/base/random.hpp>

#include "activity.hpp"

namespace heddle {

namespace {

constexpr std::uint64_t world_id = 1;

/// A started collective: reports it again while this rank waits for its end.
class WatchedTransfer final : public TransferBackend {
 public:
  WatchedTransfer(std::unique_ptr<TransferBackend> inner, std::shared_ptr<Activity> activity, WatchedCall const& call)
      : inner_(std::move(inner)), activity_(std::move(activity)), call_(call) {}
  /// `inner_` waits if it is unfinished.
  ~WatchedTransfer() override {
    activity_->enter(call_);
    inner_.reset();
    activity_->leave();
  }

  bool progress() override {
    bool const done = inner_->progress();
    if (done) {
      activity_->heartbeat();
    } else {
      activity_->poll(call_);
    }
    return done;
  }

  void wait() override {
    activity_->enter(call_);
    inner_->wait();
    activity_->leave();
  }

 private:
  std::unique_ptr<TransferBackend> inner_;
  std::shared_ptr<Activity> activity_;
  WatchedCall call_;
};

/// Reports in an Activity which collective this rank is in.
class WatchedBackend final : public DecoratedBackend {
 public:
  WatchedBackend(std::shared_ptr<CommunicatorBackend> inner, NamedGroup group, std::shared_ptr<Activity> activity,
                 std::uint64_t id = world_id)
      : DecoratedBackend(std::move(inner), std::move(group)),
        activity_(std::move(activity)),
        watched_(activity_->add_group(this->group(), id)) {}

 protected:
  void before(CollectiveCall const& call) override {
    if (call.is_message()) {
      ++messages_;
    } else {
      watched_.entered.store(watched_.entered.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    activity_->enter(reported(call));
  }
  void after(CollectiveCall const& /*call*/) noexcept override { activity_->leave(); }
  std::unique_ptr<TransferBackend> around(CollectiveCall const& call,
                                          std::unique_ptr<TransferBackend> transfer) override {
    return std::make_unique<WatchedTransfer>(std::move(transfer), activity_, reported(call));
  }
  std::shared_ptr<CommunicatorBackend> decorate(std::shared_ptr<CommunicatorBackend> part, int color,
                                                NamedGroup group) override {
    std::uint64_t const id = mix_bits(watched_.id ^ (++splits_ << 32U) ^ static_cast<std::uint32_t>(color));
    return std::make_shared<WatchedBackend>(std::move(part), std::move(group), activity_, id);
  }

 private:
  WatchedCall reported(CollectiveCall const& call) const {
    bool const message = call.is_message();
    return {&watched_, call.name(), message ? messages_ : watched_.entered.load(std::memory_order_relaxed),
            common_elements(call), message ? world_rank(call.peer) : -1};
  }

  std::shared_ptr<Activity> activity_;
  WatchedGroup& watched_;
  std::int64_t messages_ = 0;
  std::uint64_t splits_ = 0;
};

}  // namespace

std::shared_ptr<CommunicatorBackend> watched_backend(std::shared_ptr<CommunicatorBackend> world,
                                                     std::shared_ptr<Activity> activity) {
  return decorated<WatchedBackend>(std::move(world), std::move(activity));
}

}  // namespace heddle
