#include "activity.hpp"

#include <algorithm>
#include <string_view>

namespace heddle {

namespace {

StatusText status_text(std::string_view text) {
  StatusText result{};
  std::copy_n(text.begin(), std::min(text.size(), result.size() - 1), result.begin());
  return result;
}

}  // namespace

WatchedGroup& Activity::add_group(NamedGroup group, std::uint64_t id) {
  std::lock_guard const lock(mutex_);
  WatchedGroup& added = groups_.emplace_back();
  added.group = std::move(group);
  added.id = id;
  return added;
}

void Activity::set(WatchedCall const& call, bool waits) {
  {
    std::lock_guard const lock(mutex_);
    call_ = call;
    waits_ = waits;
  }
  if (waits) {
    heartbeat();
  }
}

void Activity::poll(WatchedCall const& call) {
  if (!(call_ == call)) {
    set(call, false);
  }
  polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void Activity::leave() {
  {
    std::lock_guard const lock(mutex_);
    waits_ = false;
  }
  heartbeat();
}

void Activity::set_phase(char const* name, std::int64_t step, bool finishes) {
  {
    std::lock_guard const lock(mutex_);
    phase_ = name;
    step_ = step;
    finishes_ = finishes;
  }
  heartbeat();
}

RankStatus Activity::status() const {
  std::lock_guard const lock(mutex_);
  RankStatus status;
  status.phase = status_text(phase_);
  status.step = step_;
  status.finishes = finishes_;
  status.waits = waits_;
  status.collective = status_text(call_.name);
  status.sequence = call_.sequence;
  status.elements = call_.elements;
  status.peer = call_.peer;
  if (call_.group != nullptr) {
    auto const& [name, members] = call_.group->group;
    status.group = call_.group->id;
    status.group_name = status_text(name);
    status.members = static_cast<int>(members.size());
    std::copy_n(members.begin(), std::min(RankStatus::max_members, members.size()), status.member.begin());
  }
  for (WatchedGroup const& each : groups_) {
    if (static_cast<std::size_t>(status.groups) < RankStatus::max_groups) {
      status.entered[static_cast<std::size_t>(status.groups++)] = {each.id, each.entered.load()};
    }
  }
  return status;
}

}  // namespace heddle
