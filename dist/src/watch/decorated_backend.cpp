#include "decorated_backend.hpp"

#include <numeric>
#include <utility>

namespace heddle {

NamedGroup world_group(CommunicatorBackend const& world) {
  NamedGroup group{"world", std::vector<int>(static_cast<std::size_t>(world.size()))};
  std::iota(group.members.begin(), group.members.end(), 0);
  return group;
}

std::int64_t common_elements(VerbCall const& call) {
  return call.verb == Verb::all_to_all ? 0 : call.payload().size();
}

template <class Action>
auto DecoratedBackend::run_inside(VerbCall const& call, Action const& action) {
  before(call);
  struct After {
    DecoratedBackend& self;
    VerbCall const& call;
    ~After() { self.after(call); }
  } const at_the_end{*this, call};
  return action();
}

std::unique_ptr<TransferBackend> DecoratedBackend::run(VerbCall const& call) {
  return run_inside(call, [&] {
    auto transfer = inner_->run(call);
    return transfer == nullptr ? std::move(transfer) : around(call, std::move(transfer));
  });
}

std::shared_ptr<CommunicatorBackend> DecoratedBackend::split(int color, int key, std::string const& name) {
  Tensor const none;
  return run_inside({.verb = Verb::split, .input = none, .output = none}, [&] {
    auto part = inner_->split(color, key, name);
    Tensor const own = Tensor::allocate_on_host(DType::int32, {1});
    Tensor const all = Tensor::allocate_on_host(DType::int32, {part->size()});
    int const world_rank = this->world_rank(rank());
    copy_from_host(own, &world_rank);
    part->run({.verb = Verb::all_gather, .input = own, .output = all});
    return decorate(std::move(part), color, {name, to_host<std::int32_t>(all)});
  });
}

}  // namespace heddle
