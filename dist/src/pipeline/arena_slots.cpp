#include "arena_slots.hpp"

#include <algorithm>
#include <heddle/core/base/seconds.hpp>
#include <heddle/core/parallel/backoff.hpp>
#include <heddle/dist/pipeline/pipeline.hpp>

namespace heddle {

ArenaSlots::Slot& ArenaSlots::take() {
  collect();
  if (free_.empty() && reserved_ > 0 && slots_.size() >= reserved_) {
    await_sends();
  }
  if (free_.empty()) {
    free_.push_back(&add());
  }
  Slot& slot = *free_.back();
  free_.pop_back();
  return slot;
}

void ArenaSlots::await_sends() {
  // No longer: the receiver may need a message that this rank has not sent yet.
  constexpr double timeout = 0.05;
  auto const begin = SteadyClock::now();
  while (free_.empty() && !leaving_.empty() && seconds_since(begin) < timeout) {
    yield_core();
    collect();
  }
}

ArenaSlots::Slot& ArenaSlots::add() {
  Slot& slot = slots_.emplace_back(kind_);
  if (planned_ > 0) {
    slot.arena.plan(planned_);
  }
  return slot;
}

void ArenaSlots::progress() {
  for (Slot& slot : slots_) {
    std::erase_if(slot.sends, [](Transfer& send) { return send.progress(); });
  }
}

void ArenaSlots::collect() {
  progress();
  std::erase_if(leaving_, [this](Slot* slot) {
    if (!slot->sends.empty()) {
      return false;
    }
    slot->arena.release(0);
    free_.push_back(slot);
    return true;
  });
}

void ArenaSlots::finish(std::size_t max) {
  collect();
  while (leaving_.size() > max) {
    for (Transfer& send : leaving_.front()->sends) {
      send.wait();
    }
    collect();
  }
}

std::vector<std::size_t> ArenaSlots::peaks() const {
  std::vector<std::size_t> bytes;
  for (Slot const& slot : slots_) {
    bytes.push_back(slot.arena.peak());
  }
  return bytes;
}

void ArenaSlots::reserve(std::vector<std::size_t> const& bytes) {
  reserved_ = slots_.size() + bytes.size();
  planned_ = bytes.empty() ? 0 : with_margin(std::ranges::max(bytes));
  // The last of the free ones is taken first.
  for (auto peak = bytes.rbegin(); peak != bytes.rend(); ++peak) {
    Slot& slot = add();
    slot.arena.reserve(*peak);
    free_.push_back(&slot);
  }
}

}  // namespace heddle
