#pragma once

#include "activity.hpp"

namespace heddle {

/// Publishes in an Activity which verb this rank is in, while it is there.
class WatchedBackend final : public DecoratedBackend {
 public:
  WatchedBackend(std::shared_ptr<CommunicatorBackend> inner, std::shared_ptr<Activity> activity, NamedGroup group,
                 std::uint64_t id)
      : DecoratedBackend(std::move(inner)),
        activity_(std::move(activity)),
        group_(activity_->add_group(std::move(group), id)) {}

 protected:
  void before(VerbCall const& call) override;
  void after() noexcept override { activity_->leave(); }
  std::unique_ptr<TransferBackend> around(VerbCall const& call, std::unique_ptr<TransferBackend> transfer) override;
  std::shared_ptr<CommunicatorBackend> decorate(std::shared_ptr<CommunicatorBackend> part, int color,
                                                std::string const& name) override;

 private:
  std::int64_t sequence_of(VerbCall const& call) const;

  std::shared_ptr<Activity> activity_;
  WatchedGroup& group_;
  std::int64_t messages_ = 0;
  std::uint64_t splits_ = 0;
};

}  // namespace heddle
