#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <optional>
#include <ranges>
#include <regex>
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

/// The folder of a private directory to which old files are moved. It has the first name until all of them are there,
/// and the second while the new ones get their names.
constexpr char const* moving_aside = ".replaced";
constexpr char const* moved_aside = ".replaced-all";

void require_unused(fs::path const& target) {
  for (std::string const& name : names_in(target)) {
    if (!is_private_name(name, ".")) {
      throw UsageError("{}: has files, such as {}; name a new directory", target.string(), name);
    }
  }
}

/// Ends what a process that was killed while it replaced files of `target` began: afterwards either all old files have
/// their names or all new ones. Names that something else took meanwhile stay. Throws Error if a file cannot be
/// renamed.
void end_replacing(fs::path const& stale, fs::path const& target) {
  std::error_code unknown;
  bool const all = fs::exists(stale / moved_aside, unknown);
  fs::path const from = all ? stale : stale / moving_aside;
  if (!fs::is_directory(from, unknown)) {
    return;
  }
  for (std::string const& name : names_in(from)) {
    if (name != moved_aside) {
      rename_without_replacing(from / name, target / name);
    }
  }
  sync_to_disk(target);
}

/// Removes private directories that no living process holds, as far as that can be found out.
void remove_stale(fs::path const& parent, std::string const& prefix) {
  std::error_code ignored;
  for (fs::directory_iterator entry(parent, ignored), end; entry != end; entry.increment(ignored)) {
    if (is_private_name(entry->path().filename().string(), prefix)) {
      FileDescriptor const stale(entry->path(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      if (stale.is_open() && ::flock(stale.get(), LOCK_EX | LOCK_NB) == 0) {
        end_replacing(entry->path(), parent);
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
  State(fs::path const& place, Target what) : target(place.lexically_normal()), allowed(what) {
    if (!target.has_filename()) {  // "data/" names the same place as "data"
      target = target.parent_path();
    }
    std::error_code unknown;
    is_there = fs::is_directory(target, unknown);
    parent = is_there ? target : target.has_parent_path() ? target.parent_path() : ".";
    prefix = is_there ? "." : fmt::format(".{}.", target.filename().string());
    if (target.empty() || (!is_there && fs::exists(fs::symlink_status(target, unknown)))) {
      throw UsageError("\"{}\" is not a directory; name a new one", place.string());
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
  Target allowed;
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
  bool const alone = try_lock(directory);
  if (allowed == Target::unused) {
    require_unused(target);
  }
  if (!alone && (replaced || allowed == Target::unused)) {
    throw UsageError(target.string() + ": another process is putting its files there; wait for its end");
  }
  std::set<std::string> const names = names_in(path);
  Moves moves;
  if (replaced) {
    fs::path const old = path / moving_aside;
    fs::create_directory(old);
    for (std::string const& name : names_in(target)) {
      if (replaced(name)) {
        require_regular_or_absent(target / name);
        moves.move(target / name, old / name);
      }
    }
    moves.move(old, path / moved_aside);
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

PendingDirectory::PendingDirectory(fs::path target, Target allowed) : state_(std::make_unique<State>(target, allowed)) {
  remove_stale(state_->parent, state_->prefix);
  if (allowed == Target::unused && state_->is_there) {
    require_unused(state_->target);
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

std::string with_targets(std::string const& text) {
  static std::regex const private_part(R"(/\.(?:([^/\n]*)\.)?[0-9a-f]{8}\.partial\b)");
  std::string named;
  auto rest = text.begin();
  for (std::sregex_iterator found(text.begin(), text.end(), private_part), end; found != end; ++found) {
    std::smatch const& match = *found;
    named.append(rest, match[0].first);
    named += match[1].matched ? "/" + match[1].str() : "";
    rest = match[0].second;
  }
  return named.append(rest, text.end());
}

}  // namespace heddle
