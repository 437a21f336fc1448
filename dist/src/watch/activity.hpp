#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "decorated_backend.hpp"

namespace heddle {

/// A group and the number of collectives that this rank has begun there.
struct WatchedGroup {
  NamedGroup group;
  std::uint64_t id = 0;  ///< the same on all members, another one for any other group
  std::atomic<std::int64_t> entered = 0;
};

/// A text of a status, cut to its space.
using StatusText = std::array<char, 24>;

/// One rank's state, as it is sent to other ranks.
struct RankStatus {
  static constexpr std::size_t max_members = 32;
  static constexpr std::size_t max_groups = 16;
  struct Entered {
    std::uint64_t group = 0;
    std::int64_t collectives = 0;
  };

  double idle_seconds = 0;  ///< since this rank's last progress
  StatusText phase{};
  std::int64_t step = 0;
  bool finishes = false;  ///< the phase comes after the last step
  bool waits = false;     ///< in the verb below; otherwise it was the last one
  StatusText verb{};
  StatusText group_name{};
  std::uint64_t group = 0;
  std::int64_t sequence = 0;  ///< of the group's collectives; of messages, of this rank's messages there
  std::int64_t elements = 0;
  int peer = -1;    ///< of a message: the other rank in the world
  int members = 0;  ///< of the group; listed below if they are not too many
  std::array<int, max_members> member{};
  int groups = 0;
  std::array<Entered, max_groups> entered{};
};

/// A rank's present verb and phase in atomics: one thread writes, the watch's thread reads a consistent copy.
class Activity {
 public:
  Activity() = default;
  Activity(Activity const&) = delete;
  Activity& operator=(Activity const&) = delete;

  // The working thread's part.
  WatchedGroup& add_group(NamedGroup group, std::uint64_t id);
  void enter(WatchedGroup const& group, VerbCall const& call, std::int64_t sequence);
  void leave();
  /// A verb was found unfinished: no event, but whoever does nothing else waits in it.
  void poll(WatchedGroup const& group, VerbCall const& call, std::int64_t sequence);
  /// `name` is a literal.
  void set_phase(char const* name, std::int64_t step, bool finishes);
  void beat() { events_.store(events_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

  // Any thread's part.
  /// A number that grows with each event.
  std::uint64_t events() const { return events_.load(std::memory_order_acquire); }
  /// A number that grows with each poll.
  std::uint64_t polls() const { return polls_.load(std::memory_order_acquire); }
  /// Everything but idle_seconds; who polls does not wait here.
  RankStatus status() const;

 private:
  template <class Write>
  void write(Write const& fields);
  void write_verb(bool waits, WatchedGroup const& group, VerbCall const& call, std::int64_t sequence);

  // Odd while fields are written. Every store is a release and every load an acquire, so that a reader that sees a new
  // field also sees the version change.
  std::atomic<std::uint64_t> version_ = 0;
  std::atomic<std::uint64_t> events_ = 0;
  std::atomic<std::uint64_t> polls_ = 0;
  std::atomic<char const*> phase_ = "starting";
  std::atomic<std::int64_t> step_ = 0;
  std::atomic<bool> finishes_ = false;
  std::atomic<bool> waits_ = false;
  std::atomic<char const*> verb_ = "";
  std::atomic<WatchedGroup const*> group_ = nullptr;
  std::atomic<std::int64_t> sequence_ = 0;
  std::atomic<std::int64_t> elements_ = 0;
  std::atomic<int> peer_ = -1;

  mutable std::mutex adding_;  ///< of groups, which is rare
  std::deque<WatchedGroup> groups_;
};

}  // namespace heddle
