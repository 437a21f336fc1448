#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace heddle {

/// Keeps the `capacity` values used last. Key needs operator<.
template <class Key, class Value>
class LruCache {
 public:
  explicit LruCache(std::size_t capacity) : capacity_(capacity) {}

  /// The key's value, made by `make()` where there is none; valid until the next call.
  template <class Make>
  Value& find_or_make(Key const& key, Make&& make) {
    if (auto const found = places_.find(key); found != places_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->second;
    }
    entries_.emplace_front(key, make());
    places_.emplace(key, entries_.begin());
    if (entries_.size() > capacity_) {
      places_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return entries_.front().second;
  }

  std::size_t size() const { return entries_.size(); }

 private:
  using Entries = std::list<std::pair<Key, Value>>;

  std::size_t capacity_;
  Entries entries_;  // the one used last in front
  std::map<Key, typename Entries::iterator> places_;
};

}  // namespace heddle
