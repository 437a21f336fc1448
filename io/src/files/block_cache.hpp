#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <utility>
#include <vector>

namespace heddle {

/// The blocks of files that were used last, of several owners. A new block takes the place, and the memory, of the one
/// that was not used for longest once all have `max_bytes`; one is kept in any case.
class BlockCache {
 public:
  using Bytes = std::vector<std::uint8_t>;

  explicit BlockCache(std::int64_t max_bytes) : max_bytes_(max_bytes) {}

  /// The bytes of the owner's block, which load(bytes) gives unless they are here; valid until the next call.
  template <class Load>
  Bytes const& block(void const* owner, std::int64_t number, Load const& load) {
    Key const key{owner, number};
    // Two sides of a sample are read alternately: the two latest blocks are looked at first.
    constexpr int turns = 2;
    auto latest = entries_.begin();
    for (int turn = 0; turn < turns && latest != entries_.end(); ++turn, ++latest) {
      if (latest->key == key) {
        entries_.splice(entries_.begin(), entries_, latest);
        return entries_.front().bytes;
      }
    }
    auto const found = places_.find(key);
    if (found != places_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().bytes;
    }
    Bytes bytes;
    while (!entries_.empty() && bytes_ >= max_bytes_) {
      bytes_ -= std::ssize(entries_.back().bytes);
      bytes = std::move(entries_.back().bytes);
      places_.erase(entries_.back().key);
      entries_.pop_back();
    }
    load(bytes);
    bytes_ += std::ssize(bytes);
    entries_.push_front({key, std::move(bytes)});
    places_[key] = entries_.begin();
    return entries_.front().bytes;
  }

 private:
  using Key = std::pair<void const*, std::int64_t>;
  struct Entry {
    Key key;
    Bytes bytes;
  };

  std::list<Entry> entries_;  ///< latest first
  std::map<Key, std::list<Entry>::iterator> places_;
  std::int64_t bytes_ = 0;
  std::int64_t max_bytes_;
};

}  // namespace heddle
