#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/file_lock.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <ranges>

#include "files/file_descriptor.hpp"
#include "writing.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

constexpr char const* best_name = "best";

CheckpointEntry const* find_usable(std::span<CheckpointEntry const> entries, std::int64_t step) {
  auto const found = std::ranges::find(entries, step, &CheckpointEntry::step);
  return found != entries.end() && found->problem.empty() ? &*found : nullptr;
}

/// The step that a checkpoint's record names as the best, 0 for none; nothing if the record cannot be read.
std::optional<std::int64_t> recorded_best(fs::path const& checkpoint) {
  try {
    return read_state(checkpoint).best_checkpoint();
  } catch (Error const&) {
    return std::nullopt;
  }
}

}  // namespace

TrainingState read_state(fs::path const& checkpoint) {
  return Checkpoint::open(checkpoint, Communicator::self(), {}, Verification::at_reading).state();
}

std::int64_t linked_best(std::span<CheckpointEntry const> entries) {
  if (entries.empty()) {
    return 0;
  }
  std::error_code none;
  fs::path const target = fs::read_symlink(entries.front().directory.parent_path() / best_name, none);
  std::int64_t const step = checkpoint_step(target.string()).value_or(0);
  return find_usable(entries, step) != nullptr ? step : 0;
}

BestCheckpoint best_of(std::span<CheckpointEntry const> entries) {
  BestCheckpoint best;
  for (CheckpointEntry const& entry : std::views::reverse(entries)) {
    auto const recorded = entry.problem.empty() ? recorded_best(entry.directory) : std::nullopt;
    if (!recorded) {
      continue;
    }
    if (std::int64_t const step = *recorded == 0 ? linked_best(entries) : *recorded;
        step == 0 || find_usable(entries, step) != nullptr) {
      best.step = step == 0 ? std::nullopt : std::optional(step);
      break;
    }
    best.missing = best.missing.value_or(*recorded);
  }
  return best;
}

bool flag_best(std::vector<CheckpointEntry>& entries, std::optional<std::int64_t> step) {
  auto const found = std::ranges::find(entries, step.value_or(-1), &CheckpointEntry::step);
  if (found != entries.end()) {
    found->best = true;
  }
  return found != entries.end();
}

std::int64_t CheckpointStore::linked_best(std::int64_t newest) const {
  return heddle::linked_best(usable(newest));
}

std::string CheckpointStore::link_best(std::int64_t step) const {
  if (!fs::is_directory(directory_)) {
    return "";
  }
  try {
    FileLock lock(directory_ / store_lock_name);  // else a writer could take the new link for a leftover
    lock.take(FileLock::Kind::shared);
    auto entries = usable(step);
    flag_best(entries, best_of(entries).step);
    return link_best(entries);
  } catch (std::exception const& error) {
    return error.what();
  }
}

std::string CheckpointStore::link_best(std::vector<CheckpointEntry> const& usable) const {
  fs::path const link = directory_ / best_name;
  auto const best = std::ranges::find(usable, true, &CheckpointEntry::best);
  try {
    std::error_code none;
    fs::path const target = fs::read_symlink(link, none);
    if (best != usable.end() && target != best->directory.filename()) {
      fs::path const made = directory_ / temporary_name(best_name);
      fs::remove(made);
      fs::create_directory_symlink(best->directory.filename(), made);
      move_best_aside();
      fs::rename(made, link);
      sync_to_disk(directory_);
    } else if (best == usable.end() && !none &&
               find_usable(usable, checkpoint_step(target.string()).value_or(-1)) == nullptr) {
      fs::remove(link);
      sync_to_disk(directory_);
    }
    return "";
  } catch (std::exception const& error) {
    return link.string() + ": this link to the best checkpoint could not be set: " + error.what();
  }
}

/// A copied run may have a directory in the link's place, where its copying followed links: it is kept under another
/// name.
void CheckpointStore::move_best_aside() const {
  fs::path const best = directory_ / best_name;
  if (fs::is_symlink(best) || !fs::is_directory(best)) {
    return;
  }
  for (int number = 1; !rename_without_replacing(best, best.string() + "-copied-" + std::to_string(number)); ++number) {
  }
}

namespace {

/// The name of a directory, which may be written with a '/' at its end.
std::string name_of(fs::path const& directory) {
  return (directory.has_filename() ? directory : directory.parent_path()).filename().string();
}

/// The place of the best checkpoint where the user named the link `best` and it is missing.
fs::path without_link(fs::path const& place) {
  fs::path const store = place.has_filename() ? place.parent_path() : place.parent_path().parent_path();
  std::error_code ignored;
  if (name_of(place) != best_name || fs::exists(place, ignored) || !fs::is_directory(store, ignored)) {
    return place;
  }
  auto const best = best_of(CheckpointStore(store, 2).list(CheckpointStore::Check::sizes)).step;
  return best ? store / checkpoint_directory_name(*best) : place;
}

/// True if the user named one checkpoint and not a store of them.
bool is_one_checkpoint(fs::path const& place) {
  std::error_code ignored;
  return checkpoint_step(name_of(place)).has_value() || fs::exists(place / manifest_file_name, ignored);
}

/// The step of a checkpoint, also under another name; 0 if it is not known.
std::int64_t step_of(fs::path const& checkpoint) {
  if (auto const step = checkpoint_step(checkpoint.filename().string())) {
    return *step;
  }
  try {
    return read_manifest(checkpoint).step;
  } catch (Error const&) {
    return 0;
  }
}

}  // namespace

std::vector<CheckpointEntry> list_checkpoints(fs::path const& named, CheckpointStore::Check check) {
  constexpr int max_looks = 100;
  fs::path place;
  std::error_code failure;
  for (int look = 0; look < max_looks; ++look) {  // a run may link another one as the best and remove this one
    place = without_link(named);
    fs::path const directory = fs::canonical(place, failure);
    if (failure || !is_one_checkpoint(place)) {
      break;
    }
    CheckpointEntry entry{step_of(directory), directory, bytes_below(directory), false,
                          checkpoint_problem(directory, check)};
    if (fs::exists(directory, failure)) {
      return {entry};
    }
  }
  if (!fs::is_directory(place, failure)) {
    std::string const reason =
        fs::exists(place, failure) ? place.string() + ": is not a directory" : missing_file(place);
    throw DataError(reason + "; expected the directory of a run, of its checkpoints, or of one checkpoint");
  }
  fs::path const below = place / "checkpoints";
  return CheckpointStore(fs::is_directory(below, failure) ? below : place, 2).list(check);
}

}  // namespace heddle
