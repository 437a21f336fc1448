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
    Arena arena;
    std::vector<Transfer> sends;  ///< from the arena's tensors
  };

  /// A slot with an empty arena.
  Slot& take();
  /// Gives a slot back: only its sends still need it.
  void give_back(Slot& slot) { leaving_.push_back(&slot); }
  /// Waits until no more than `most` slots that were given back are sending.
  void finish(std::size_t most = 0);
  /// The most bytes ever used in each arena.
  std::vector<std::size_t> peaks() const;
  /// Takes the pages of as many arenas, which must be free, from the system now.
  void reserve(std::vector<std::size_t> const& bytes);

 private:
  void collect();

  std::deque<Slot> slots_;
  std::vector<Slot*> free_;    ///< the last one is reused first: its pages are in cache
  std::deque<Slot*> leaving_;  ///< the oldest first
};

}  // namespace heddle
