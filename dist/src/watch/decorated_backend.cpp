#include "decorated_backend.hpp"

#include <heddle/core/parallel/host_values.hpp>
#include <numeric>
#include <utility>

namespace heddle {

NamedGroup world_group(CommunicatorBackend const& world) {
  NamedGroup group{"world", std::vector<int>(static_cast<std::size_t>(world.size()))};
  std::iota(group.members.begin(), group.members.end(), 0);
  return group;
}

std::int64_t common_elements(CollectiveCall const& call) {
  return call.collective == CollectiveOp::all_to_all ? 0 : call.payload().size();
}

template <class Action>
auto DecoratedBackend::run_inside(CollectiveCall const& call, Action const& action) {
  before(call);
  struct After {
    DecoratedBackend& self;
    CollectiveCall const& call;
    ~After() { self.after(call); }
  } const at_the_end{*this, call};
  return action();
}

std::unique_ptr<TransferBackend> DecoratedBackend::run(CollectiveCall const& call) {
  return run_inside(call, [&] {
    auto transfer = inner_->run(call);
    return transfer == nullptr ? std::move(transfer) : around(call, std::move(transfer));
  });
}

std::shared_ptr<CommunicatorBackend> DecoratedBackend::split(int color, int key, std::string const& name) {
  Tensor const none;
  return run_inside({.collective = CollectiveOp::split, .input = none, .output = none}, [&] {
    auto part = inner_->split(color, key, name);
    auto members = gather_values(Communicator(part), world_rank(rank()));
    return decorate(std::move(part), color, {name, std::move(members)});
  });
}

}  // namespace heddle
