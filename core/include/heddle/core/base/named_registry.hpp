#pragma once

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// The part that the entries of all registries share.
struct NamedEntry {
  std::string name;
  std::string origin = {};  ///< "built-in" or the plug-in's path
};

/// Entries by name, derived from NamedEntry, which built-in code and plug-ins add.
template <class EntryType>
class NamedRegistry {
 public:
  using Entry = EntryType;

  /// Null if the name is not registered.
  Entry const* find(std::string const& name) const {
    auto const found = std::ranges::find(entries_, name, &Entry::name);
    return found == entries_.end() ? nullptr : &*found;
  }
  std::vector<Entry> const& entries() const { return entries_; }
  /// Sets the origin of entries that are added from now on.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 protected:
  /// Throws ConfigError if the name is taken, and if the entry, a `kind` of thing, lacks something: "name"; "":
  /// nothing.
  void insert(std::string_view kind, std::string_view lack, Entry entry) {
    if (!lack.empty()) {
      throw ConfigError("{} registers the {} '{}' without a {}", origin_, kind, entry.name, lack);
    }
    if (Entry const* const taken = find(entry.name)) {
      throw ConfigError("the {0} name '{1}' is taken by {2}; each {0} needs its own name", kind, entry.name,
                        taken->origin);
    }
    entry.origin = origin_;
    entries_.push_back(std::move(entry));
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    std::ranges::transform(entries_, std::back_inserter(names), &Entry::name);
    return names;
  }

 private:
  std::vector<Entry> entries_;
  std::string origin_ = "built-in";
};

}  // namespace heddle
