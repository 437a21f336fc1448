#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>

namespace heddle {

/// Keeps the `capacity` values used last and, beyond that number, values that are in use: used among the last
/// `patience` calls per stored value. Key needs operator<.
template <class Key, class Value>
class LruCache {
 public:
  explicit LruCache(std::size_t capacity, std::uint64_t patience = 0) : capacity_(capacity), patience_(patience) {}

  /// The key's value, made by `make()` if there is none; valid until the next call. `make` may clear the cache.
  template <class Make>
  Value& find_or_make(Key const& key, Make&& make) {
    ++calls_;
    if (auto const found = places_.find(key); found != places_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
    } else {
      entries_.push_front({key, make(), 0});
      places_.emplace(key, entries_.begin());
    }
    entries_.front().last_call = calls_;
    drop_unused();
    return entries_.front().value;
  }

  /// The key's value, or null. This is not a use of it.
  Value* find(Key const& key) {
    auto const found = places_.find(key);
    return found != places_.end() ? &found->second->value : nullptr;
  }

  std::size_t size() const { return entries_.size(); }

  void clear() {
    places_.clear();
    entries_.clear();
  }

  /// Calls `visit(value)` for each value, the one used last first.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (Entry const& entry : entries_) {
      visit(entry.value);
    }
  }

 private:
  struct Entry {
    Key key;
    Value value;
    std::uint64_t last_call;
  };
  using Entries = std::list<Entry>;

  void drop_unused() {
    while (entries_.size() > capacity_ && calls_ - entries_.back().last_call >= patience_ * entries_.size()) {
      places_.erase(entries_.back().key);
      entries_.pop_back();
    }
  }

  std::size_t capacity_;
  std::uint64_t patience_;
  std::uint64_t calls_ = 0;
  Entries entries_;  // the one used last in front
  std::map<Key, typename Entries::iterator> places_;
};

}  // namespace heddle
