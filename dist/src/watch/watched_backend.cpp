#include "watched_backend.hpp"

namespace heddle {

namespace {

/// A started verb: publishes it again while this rank waits for its end.
class WatchedTransfer final : public TransferBackend {
 public:
  WatchedTransfer(std::unique_ptr<TransferBackend> inner, std::shared_ptr<Activity> activity, WatchedGroup const& group,
                  VerbCall const& call, std::int64_t sequence)
      : inner_(std::move(inner)), activity_(std::move(activity)), group_(group), call_(call), sequence_(sequence) {
    call_.counts = {};  // they may not outlive the call
  }
  WatchedTransfer(WatchedTransfer const&) = delete;
  WatchedTransfer& operator=(WatchedTransfer const&) = delete;
  /// `inner_` waits if it is unfinished.
  ~WatchedTransfer() override {
    activity_->enter(group_, call_, sequence_);
    inner_.reset();
    activity_->leave();
  }

  bool progress() override {
    bool const done = inner_->progress();
    if (done) {
      activity_->beat();
    } else {
      activity_->poll(group_, call_, sequence_);
    }
    return done;
  }

  void wait() override {
    activity_->enter(group_, call_, sequence_);
    inner_->wait();
    activity_->leave();
  }

 private:
  std::unique_ptr<TransferBackend> inner_;
  std::shared_ptr<Activity> activity_;
  WatchedGroup const& group_;
  VerbCall call_;
  std::int64_t sequence_;
};

/// Mixes the id of a group with the number of the split and the colour (the finaliser of SplitMix64).
std::uint64_t part_id(std::uint64_t parent, std::uint64_t split, int color) {
  std::uint64_t mixed = parent ^ (split << 32U) ^ static_cast<std::uint32_t>(color);
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31U);
}

}  // namespace

std::int64_t WatchedBackend::sequence_of(VerbCall const& call) const {
  return call.peer >= 0 ? messages_ : group_.entered.load(std::memory_order_relaxed);
}

void WatchedBackend::before(VerbCall const& call) {
  if (call.peer >= 0) {
    ++messages_;
  } else {
    group_.entered.store(group_.entered.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  activity_->enter(group_, call, sequence_of(call));
}

std::unique_ptr<TransferBackend> WatchedBackend::around(VerbCall const& call,
                                                        std::unique_ptr<TransferBackend> transfer) {
  return std::make_unique<WatchedTransfer>(std::move(transfer), activity_, group_, call, sequence_of(call));
}

std::shared_ptr<CommunicatorBackend> WatchedBackend::decorate(std::shared_ptr<CommunicatorBackend> part, int color,
                                                              std::string const& name) {
  NamedGroup group = group_of(*part, group_.group.members[static_cast<std::size_t>(rank())], name);
  return std::make_shared<WatchedBackend>(std::move(part), activity_, std::move(group),
                                          part_id(group_.id, ++splits_, color));
}

}  // namespace heddle
