#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "decorated_backend.hpp"

namespace heddle {

/// A group and the number of collectives that this rank has started there.
struct WatchedGroup {
  NamedGroup group;
  std::uint64_t id = 0;  ///< the same on all members, another one for any other group
  std::atomic<std::int64_t> entered = 0;
};

/// A call of a collective in a group, as it is reported.
struct WatchedCall {
  WatchedGroup const* group = nullptr;
  char const* name = "";      ///< a literal
  std::int64_t sequence = 0;  ///< number among the group's collectives or, for a message, this rank's messages there
  std::int64_t elements = 0;
  int peer = -1;  ///< the other rank of a message, in the world

  bool operator==(WatchedCall const&) const = default;
};

/// A string of a status, truncated to its space: a group of all four axes fits.
using StatusText = std::array<char, 48>;

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
  bool waits = false;     ///< in the collective below; otherwise it was the last one
  StatusText collective{};
  StatusText group_name{};
  std::uint64_t group = 0;
  std::int64_t sequence = 0;  ///< this and the next two: see WatchedCall
  std::int64_t elements = 0;
  int peer = -1;
  int members = 0;  ///< members of the group; listed below if they are not too many
  std::array<int, max_members> member{};
  int groups = 0;
  std::array<Entered, max_groups> entered{};
};

/// A rank's present collective and phase: one thread writes, the watch's thread reads.
class Activity {
 public:
  // The working thread's part.
  WatchedGroup& add_group(NamedGroup group, std::uint64_t id);
  void enter(WatchedCall const& call) { set(call, true); }
  void leave();
  /// A transfer was found unfinished: no event, but a rank that does nothing else waits in it.
  void poll(WatchedCall const& call);
  /// `name` is a literal.
  void set_phase(char const* name, std::int64_t step, bool finishes);
  void heartbeat() { events_.store(events_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

  // Any thread's part.
  /// A number that grows with each event.
  std::uint64_t events() const { return events_.load(std::memory_order_acquire); }
  std::uint64_t polls() const { return polls_.load(std::memory_order_acquire); }
  /// Everything but idle_seconds; a rank that polls does not wait here.
  RankStatus status() const;

 private:
  void set(WatchedCall const& call, bool waits);

  std::atomic<std::uint64_t> events_ = 0;
  std::atomic<std::uint64_t> polls_ = 0;

  mutable std::mutex mutex_;  ///< for all below: locked by the working thread to write, by others to read
  char const* phase_ = "starting";
  std::int64_t step_ = 0;
  bool finishes_ = false;
  bool waits_ = false;
  WatchedCall call_;
  std::deque<WatchedGroup> groups_;
};

/// The backend of a world, and of groups that are split off it, that reports to `activity` in which collective this
/// rank is, while it is there.
std::shared_ptr<CommunicatorBackend> watched_backend(std::shared_ptr<CommunicatorBackend> world,
                                                     std::shared_ptr<Activity> activity);

}  // namespace heddle
