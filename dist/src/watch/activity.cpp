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

template <class Write>
void Activity::write(Write const& fields) {
  std::uint64_t const version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_release);
  fields();
  version_.store(version + 2, std::memory_order_release);
}

WatchedGroup& Activity::add_group(NamedGroup group, std::uint64_t id) {
  std::lock_guard const lock(adding_);
  WatchedGroup& added = groups_.emplace_back();
  added.group = std::move(group);
  added.id = id;
  return added;
}

void Activity::enter(WatchedGroup const& group, VerbCall const& call, std::int64_t sequence) {
  write_verb(true, group, call, sequence);
  beat();
}

void Activity::poll(WatchedGroup const& group, VerbCall const& call, std::int64_t sequence) {
  bool const published = group_.load(std::memory_order_relaxed) == &group &&
                         verb_.load(std::memory_order_relaxed) == call.name &&
                         sequence_.load(std::memory_order_relaxed) == sequence;
  if (!published) {
    write_verb(false, group, call, sequence);
  }
  polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void Activity::write_verb(bool waits, WatchedGroup const& group, VerbCall const& call, std::int64_t sequence) {
  write([&] {
    waits_.store(waits, std::memory_order_release);
    verb_.store(call.name, std::memory_order_release);
    group_.store(&group, std::memory_order_release);
    sequence_.store(sequence, std::memory_order_release);
    elements_.store(call.elements, std::memory_order_release);
    peer_.store(call.peer < 0 ? -1 : group.group.members[static_cast<std::size_t>(call.peer)],
                std::memory_order_release);
  });
}

void Activity::leave() {
  write([&] { waits_.store(false, std::memory_order_release); });
  beat();
}

void Activity::set_phase(char const* name, std::int64_t step, bool finishes) {
  write([&] {
    phase_.store(name, std::memory_order_release);
    step_.store(step, std::memory_order_release);
    finishes_.store(finishes, std::memory_order_release);
  });
  beat();
}

RankStatus Activity::status() const {
  RankStatus status;
  WatchedGroup const* group = nullptr;
  std::uint64_t before = 0;
  do {
    before = version_.load(std::memory_order_acquire);
    status.phase = status_text(phase_.load(std::memory_order_acquire));
    status.step = step_.load(std::memory_order_acquire);
    status.finishes = finishes_.load(std::memory_order_acquire);
    status.waits = waits_.load(std::memory_order_acquire);
    status.verb = status_text(verb_.load(std::memory_order_acquire));
    group = group_.load(std::memory_order_acquire);
    status.sequence = sequence_.load(std::memory_order_acquire);
    status.elements = elements_.load(std::memory_order_acquire);
    status.peer = peer_.load(std::memory_order_acquire);
  } while (before % 2 != 0 || before != version_.load(std::memory_order_acquire));
  std::lock_guard const lock(adding_);
  if (group != nullptr) {
    status.group = group->id;
    status.group_name = status_text(group->group.name);
    status.members = static_cast<int>(group->group.members.size());
    std::copy_n(group->group.members.begin(), std::min(RankStatus::max_members, group->group.members.size()),
                status.member.begin());
  }
  for (WatchedGroup const& each : groups_) {
    if (static_cast<std::size_t>(status.groups) < RankStatus::max_groups) {
      status.entered[static_cast<std::size_t>(status.groups++)] = {each.id, each.entered.load()};
    }
  }
  return status;
}

}  // namespace heddle
