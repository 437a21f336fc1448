#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <optional>
#include <ranges>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "file_descriptor.hpp"
#include "pending_file.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

/// Whether no other process holds the directory; true, too, on file systems without locks.
bool try_lock(FileDescriptor const& directory) {
  return ::flock(directory.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

std::set<std::string> names_in(fs::path const& directory) {
  std::set<std::string> names;
  for (auto const& entry : fs::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

/// Removes private directories that no living process holds, as far as that can be found out.
void remove_stale(fs::path const& parent, std::string const& prefix) {
  std::error_code ignored;
  for (fs::directory_iterator entry(parent, ignored), end; entry != end; entry.increment(ignored)) {
    if (is_private_name(entry->path().filename().string(), prefix)) {
      FileDescriptor const stale(entry->path(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      if (stale.is_open() && ::flock(stale.get(), LOCK_EX | LOCK_NB) == 0) {
        fs::remove_all(entry->path(), ignored);
      }
    }
  }
}

/// Renames that are undone, last first, unless all of them succeed.
class Moves {
 public:
  Moves() = default;
  Moves(Moves const&) = delete;
  Moves& operator=(Moves const&) = delete;
  ~Moves() {
    for (auto const& [from, to] : std::views::reverse(done_)) {
      std::error_code ignored;
      fs::rename(to, from, ignored);
    }
  }
  /// False if there is something at `to`.
  bool move(fs::path const& from, fs::path const& to) {
    bool const moved = rename_without_replacing(from, to);
    if (moved) {
      done_.emplace_back(from, to);
    }
    return moved;
  }
  void keep() { done_.clear(); }

 private:
  std::vector<std::pair<fs::path, fs::path>> done_;
};

}  // namespace

struct PendingDirectory::State {
  explicit State(fs::path const& place) : target(place.lexically_normal()) {
    if (!target.has_filename()) {  // "data/" names the same place as "data"
      target = target.parent_path();
    }
    std::error_code unknown;
    is_there = fs::is_directory(target, unknown);
    parent = is_there ? target : target.has_parent_path() ? target.parent_path() : ".";
    prefix = is_there ? "." : fmt::format(".{}.", target.filename().string());
    if (target.empty() || (!is_there && fs::exists(fs::symlink_status(target, unknown)))) {
      throw UsageError(fmt::format("\"{}\" is not a directory; name a new one", place.string()));
    }
  }
  State(State const&) = delete;
  State& operator=(State const&) = delete;
  ~State() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }

  void make();
  void move_entries(std::function<bool(std::string const&)> const& replaced) const;

  fs::path target;
  bool is_there = false;
  fs::path parent;                       ///< has the private directory
  std::string prefix;                    ///< of its name
  std::optional<MadeDirectories> made;   ///< the parent and its parents, if they were missing
  fs::path path;                         ///< the private directory
  std::optional<FileDescriptor> holder;  ///< its lock, by which others know that this process is alive
};

void PendingDirectory::State::make() {
  constexpr int max_attempts = 100;  // others may remove an empty parent, or take the directory for a stale one
  for (int attempt = 0; attempt < max_attempts; ++attempt) {
    made.emplace(parent);
    path = parent / private_name(prefix);
    if (::mkdir(path.c_str(), 0777) == 0) {
      holder.emplace(path, O_RDONLY | O_DIRECTORY);
      if (holder->is_open() && try_lock(*holder) && fs::exists(path)) {
        return;
      }
    } else if (errno != ENOENT && errno != EEXIST) {
      break;
    }
  }
  fail_with_errno(target, "make the directory");
}

void PendingDirectory::State::move_entries(std::function<bool(std::string const&)> const& replaced) const {
  FileDescriptor const directory(target, O_RDONLY | O_DIRECTORY);
  if (replaced && !try_lock(directory)) {
    throw UsageError(target.string() + ": another process is replacing its files; wait for its end");
  }
  std::set<std::string> const names = names_in(path);
  Moves moves;
  if (replaced) {
    fs::path const old = path / ".replaced";
    fs::create_directory(old);
    for (std::string const& name : names_in(target)) {
      if (replaced(name)) {
        require_regular_or_absent(target / name);
        moves.move(target / name, old / name);
      }
    }
  }
  for (std::string const& name : names) {
    if (!moves.move(path / name, target / name)) {
      throw UsageError((target / name).string() +
                       ": appeared while it was being written, perhaps by another command with this output, and stays; "
                       "name another directory");
    }
  }
  moves.keep();
}

PendingDirectory::PendingDirectory(fs::path target, Target allowed) : state_(std::make_unique<State>(target)) {
  remove_stale(state_->parent, state_->prefix);
  if (allowed == Target::unused && state_->is_there) {
    for (std::string const& name : names_in(state_->target)) {
      if (!is_private_name(name, state_->prefix)) {
        throw UsageError(fmt::format("{}: has files, such as {}; name a new directory", target.string(), name));
      }
    }
  }
  state_->make();
}

PendingDirectory::~PendingDirectory() = default;

fs::path const& PendingDirectory::path() const {
  return state_->path;
}

void PendingDirectory::commit(std::function<bool(std::string const& name)> const& replaced) {
  State& state = *state_;
  sync_to_disk(state.path);
  if (state.is_there || !rename_without_replacing(state.path, state.target)) {
    state.move_entries(replaced);
    sync_to_disk(state.target);
  }
  sync_to_disk(state.parent);
  state.made->sync();
}

}  // namespace heddle
