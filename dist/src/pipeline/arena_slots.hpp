#pragma once

#include <deque>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/tensor/arena.hpp>
#include <vector>

namespace heddle {

/// Arenas that are used again once what was sent from them has left.
class ArenaSlots {
 public:
  struct Slot {
    Arena arena;
    std::vector<Transfer> sends;  ///< from the arena's tensors
  };

  /// A slot with an empty arena.
  Slot& take();
  /// Nobody but its sends needs it any more.
  void give_back(Slot& slot) { leaving_.push_back(&slot); }
  /// Waits until no more than `most` slots that were given back are sending.
  void finish(std::size_t most = 0);
  std::size_t peak_bytes() const;

 private:
  void collect();

  std::deque<Slot> slots_;
  std::vector<Slot*> free_;    ///< the last one is taken first: its pages are warm
  std::deque<Slot*> leaving_;  ///< the oldest first
};

}  // namespace heddle
