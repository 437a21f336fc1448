#pragma once

#include <deque>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/tensor/arena.hpp>
#include <vector>

namespace heddle {

/// Arenas that are reused once their messages have been sent.
class ArenaSlots {
 public:
  struct Slot {
    explicit Slot(Arena::Kind kind) : arena(Arena::default_capacity(kind), kind) {}

    Arena arena;
    std::vector<Transfer> sends;  ///< from the arena's tensors
  };

  explicit ArenaSlots(Arena::Kind kind) : kind_(kind) {}

  /// A slot with an empty arena.
  Slot& take();
  /// The slot is free when its sends have ended.
  void release(Slot& slot) { leaving_.push_back(&slot); }
  /// Moves all sends on: MPI does so in its calls only.
  void progress();
  /// Waits until at most `max` released slots are still sending.
  void finish(std::size_t max = 0);
  /// The maximum number of bytes that were in use in each arena.
  std::vector<std::size_t> peaks() const;
  /// Adds an arena for each of `bytes` and takes its pages from the system now. On a device every arena has the
  /// capacity of the largest: messages decide which one is free first.
  void reserve(std::vector<std::size_t> const& bytes);

 private:
  void collect();
  /// An arena beyond the reserved ones costs memory that the plan does not have: gives messages some time to leave.
  void await_sends();
  Slot& add();

  Arena::Kind kind_;
  std::size_t reserved_ = 0;  ///< slots that the memory plan has; 0: not planned
  std::size_t planned_ = 0;   ///< capacity of each arena on a device; 0: not planned
  std::deque<Slot> slots_;
  std::vector<Slot*> free_;    ///< the last one is reused first: its pages are in cache
  std::deque<Slot*> leaving_;  ///< the oldest first
};

}  // namespace heddle
