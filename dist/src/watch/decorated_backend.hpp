#pragma once

#include <heddle/core/parallel/communicator.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

/// A group under a name for messages, with the ranks of its members in the world.
struct NamedGroup {
  std::string name;
  std::vector<int> members;
};

NamedGroup world_group(CommunicatorBackend const& world);

/// The elements of a call's payload, the same on every rank of a collective; 0 where they may differ.
std::int64_t common_elements(CollectiveCall const& call);

/// A backend around another one: does something before and after each call, also of the groups that are split off.
class DecoratedBackend : public CommunicatorBackend {
 public:
  DecoratedBackend(std::shared_ptr<CommunicatorBackend> inner, NamedGroup group)
      : inner_(std::move(inner)), group_(std::move(group)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool reads(MemorySpace space) const override { return inner_->reads(space); }
  std::unique_ptr<TransferBackend> run(CollectiveCall const& call) override;
  std::shared_ptr<CommunicatorBackend> split(int color, int key, std::string const& name) override;

 protected:
  /// The group itself, for exchanges that are not decorated.
  Communicator inner() const { return Communicator(inner_); }
  NamedGroup const& group() const { return group_; }
  /// A member's rank in the world.
  int world_rank(int member) const { return group_.members[static_cast<std::size_t>(member)]; }
  virtual void before(CollectiveCall const& /*call*/) {}
  /// Called also if the call throws.
  virtual void after(CollectiveCall const& /*call*/) noexcept {}
  /// Called between before and after of a call that has started.
  virtual std::unique_ptr<TransferBackend> around(CollectiveCall const& /*call*/,
                                                  std::unique_ptr<TransferBackend> transfer) {
    return transfer;
  }
  /// Decorates a group that was split off this one.
  virtual std::shared_ptr<CommunicatorBackend> decorate(std::shared_ptr<CommunicatorBackend> part, int color,
                                                        NamedGroup group) = 0;

 private:
  template <class Action>
  auto run_inside(CollectiveCall const& call, Action const& action);

  std::shared_ptr<CommunicatorBackend> inner_;
  NamedGroup group_;
};

/// The backend of a world decorated by Backend(world, its group, arguments …).
template <class Backend, class... Arguments>
std::shared_ptr<CommunicatorBackend> decorated(std::shared_ptr<CommunicatorBackend> world, Arguments... arguments) {
  NamedGroup group = world_group(*world);
  return std::make_shared<Backend>(std::move(world), std::move(group), std::move(arguments)...);
}

}  // namespace heddle
