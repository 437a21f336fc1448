#include "crashed_disk.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace heddle {

namespace {

namespace fs = std::filesystem;

using Kind = FileEvent::Kind;

constexpr std::size_t sector = 512;

std::string parent_of(std::string const& path) {
  return fs::path(path).parent_path().string();
}

std::string name_of(std::string const& path) {
  return fs::path(path).filename().string();
}

}  // namespace

CrashedDisk::CrashedDisk(std::vector<FileEvent> const& events, std::size_t first, Loss loss, std::uint64_t seed)
    : random_(seed) {
  new_node(true);
  for (std::size_t number = 0; number < first; ++number) {
    record(events[number]);
  }
  disk_.resize(live_.size());
  for (std::size_t node = 0; node < live_.size(); ++node) {
    disk_[node].directory = live_[node].directory;
    disk_[node].link = live_[node].link;
    disk_[node].content = live_[node].link ? live_[node].content : "";
  }
  for (Change const& change : changes_) {
    if (change.durable) {
      apply(change, disk_);
    } else {
      apply_some(change, loss);
    }
  }
}

std::size_t CrashedDisk::new_node(bool directory) {
  live_.push_back({directory, "", false, {}});
  return live_.size() - 1;
}

std::size_t CrashedDisk::find(std::string_view path) const {
  std::size_t node = 0;
  for (fs::path const& part : fs::path(path)) {
    auto const entry = live_[node].entries.find(part.string());
    if (entry == live_[node].entries.end()) {
      throw std::runtime_error("the log has no event that made " + std::string(path));
    }
    node = entry->second;
  }
  return node;
}

void CrashedDisk::record_write(FileEvent const& event) {
  std::size_t const parent = find(parent_of(event.path));
  std::string const name = name_of(event.path);
  if (!live_[parent].entries.contains(name)) {
    std::size_t const made = new_node(false);
    live_[parent].entries[name] = made;
    changes_.push_back({&event, parent, made, name});
  }
  std::size_t const file = live_[parent].entries.at(name);
  changes_.push_back({&event, file});
  apply(changes_.back(), live_);
}

void CrashedDisk::record(FileEvent const& event) {
  std::size_t const parent = find(parent_of(event.path));
  std::string const name = name_of(event.path);
  switch (event.kind) {
    case Kind::mark:
      return;
    case Kind::write:
      return record_write(event);
    case Kind::fsync: {
      std::size_t const synced = find(event.path);
      for (Change& change : changes_) {
        bool const renamed_from = !change.old_name.empty() && change.from == synced;
        change.durable = change.durable || change.node == synced || renamed_from;
      }
      return;
    }
    case Kind::mkdir:
    case Kind::symlink: {
      std::size_t const made = new_node(event.kind == Kind::mkdir);
      live_[made].link = event.kind == Kind::symlink;
      live_[made].content = event.other;
      changes_.push_back({&event, parent, made, name});
      break;
    }
    case Kind::rename:
      changes_.push_back({&event, find(parent_of(event.other)), find(event.path), name_of(event.other), parent, name});
      break;
    case Kind::remove:
      changes_.push_back({&event, parent, 0, name});
      break;
  }
  apply(changes_.back(), live_);
}

void CrashedDisk::apply(Change const& change, std::vector<Node>& nodes) {
  Node& node = nodes[change.node];
  if (change.name.empty()) {
    std::string const& bytes = change.event->other;
    auto const offset = static_cast<std::size_t>(change.event->number);
    node.content.resize(std::max(node.content.size(), offset + bytes.size()), '\0');
    node.content.replace(offset, bytes.size(), bytes);
  } else if (change.event->kind == Kind::remove) {
    node.entries.erase(change.name);
  } else {
    if (!change.old_name.empty()) {
      nodes[change.from].entries.erase(change.old_name);
    }
    nodes[change.node].entries[change.name] = change.child;
  }
}

void CrashedDisk::apply_some(Change const& change, Loss loss) {
  bool const coin = random_() % 2 == 0;
  bool const is_write = change.name.empty();
  switch (loss) {
    case Loss::none:
      return apply(change, disk_);
    case Loss::all:
      return;
    case Loss::some:
      return coin ? apply(change, disk_) : void();
    case Loss::torn:
      return !coin ? void() : is_write ? write_torn(change, false) : apply(change, disk_);
    case Loss::data:
      return is_write ? write_torn(change, true) : apply(change, disk_);
    case Loss::names:
      return is_write ? apply(change, disk_) : void();
  }
}

void CrashedDisk::write_torn(Change const& change, bool only_length) {
  std::string& content = disk_[change.node].content;
  std::string const& bytes = change.event->other;
  auto const offset = static_cast<std::size_t>(change.event->number);
  content.resize(std::max(content.size(), offset + bytes.size()), '\0');
  for (std::size_t begin = 0; begin < bytes.size() && !only_length; begin += sector) {
    if (random_() % 4 != 0) {
      std::size_t const count = std::min(sector, bytes.size() - begin);
      content.replace(offset + begin, count, bytes, begin, count);
    }
  }
}

void CrashedDisk::write_to(fs::path const& directory) const {
  write_node(0, directory);
}

void CrashedDisk::write_node(std::size_t node, fs::path const& place) const {
  if (disk_[node].link) {
    fs::create_symlink(disk_[node].content, place);
  } else if (!disk_[node].directory) {
    std::ofstream(place, std::ios::binary) << disk_[node].content;
  } else {
    fs::create_directories(place);
    for (auto const& [name, child] : disk_[node].entries) {
      write_node(child, place / name);
    }
  }
}

}  // namespace heddle
