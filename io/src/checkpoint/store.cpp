#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/file_lock.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <iterator>
#include <limits>
#include <map>
#include <new>
#include <ranges>
#include <utility>

#include "files/file_descriptor.hpp"
#include "parallel/run_collectively.hpp"
#include "state_file.hpp"
#include "tensors/hosts.hpp"
#include "tensors/tensor_writer.hpp"
#include "writing.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view temporary_prefix = ".tmp-";
constexpr std::string_view rejected_prefix = "rejected-";
constexpr std::int64_t min_kept = 2;
constexpr auto leftover_age = std::chrono::hours(24);

/// The checkpoints' directories by step, by their names; none if there is no such directory. Throws DataError if
/// something else has its name.
std::map<std::int64_t, fs::path> find_steps(fs::path const& directory) {
  std::map<std::int64_t, fs::path> steps;
  if (!fs::exists(fs::symlink_status(directory))) {
    return steps;
  }
  if (!fs::is_directory(directory)) {  // nor a link to one
    throw DataError(directory.string() + ": is not a directory; move it away");
  }
  for (auto const& entry : fs::directory_iterator(directory)) {
    if (auto const step = checkpoint_step(entry.path().filename().string())) {
      steps[*step] = entry.path();
    }
  }
  return steps;
}

bool has_rejected(fs::path const& directory) {
  return fs::exists(directory) &&
         std::any_of(fs::directory_iterator(directory), fs::directory_iterator(),
                     [](auto const& entry) { return entry.path().filename().string().starts_with(rejected_prefix); });
}

/// True if a leftover has not changed for a day: then no process is still writing it, even without file locks.
bool is_old(fs::path const& path) {
  return fs::last_write_time(path) + leftover_age < fs::file_time_type::clock::now();
}

bool is_unfinished(fs::path const& path) {
  return path.filename().string().starts_with(temporary_prefix);
}

/// Notes how long a large checkpoint took.
void note_times(WrittenTensors const& written, std::int64_t step, CommitResult& result) {
  constexpr std::int64_t large = std::int64_t{100} << 20;
  std::int64_t bytes = 0;
  for (FileDigest const& file : written.files) {
    bytes += file.bytes;
  }
  if (bytes < large) {
    return;
  }
  auto const speed = [&](double seconds) {
    return fmt::format("{:.1f} s ({:.2f} GB/s)", seconds, static_cast<double>(bytes) / 1e9 / std::max(seconds, 1e-9));
  };
  WriteTimes const& times = written.times;
  result.times = fmt::format(
      "checkpoint of step {}: {:.2f} GB gathered and synced in {}: write and fsync {}, digest {}; read back in {}",
      readable_count(step), static_cast<double>(bytes) / 1e9, speed(times.all), speed(times.write), speed(times.digest),
      speed(times.read_back));
}

std::int64_t bytes_of(CheckpointContents const& contents, TensorFiles const& planned) {
  std::int64_t bytes = std::ssize(contents.config) + std::ssize(contents.source_model) +
                       std::ssize(contents.target_model) + contents.origin_bytes();
  for (TensorFile const& file : planned.files) {
    bytes += file.image->size();
  }
  return bytes;
}

}  // namespace

std::string checkpoint_problem(fs::path const& directory, CheckpointStore::Check check, Communicator const& world) {
  try {
    on_rank_0(world, [&] {
      if (fs::is_symlink(directory) || !fs::is_directory(directory)) {
        throw DataError(directory.string() + ": is not a directory");
      }
      verify_file_sizes(directory);
    });
    if (check == CheckpointStore::Check::all_bytes) {
      Checkpoint::open(directory, world);
    }
    return "";
  } catch (std::bad_alloc const&) {
    throw;
  } catch (std::exception const& error) {
    return error.what();
  }
}

void write_manifest(fs::path const& directory, Manifest const& manifest, CheckpointStore::Observer const& reached) {
  fs::path const manifest_file = directory / manifest_file_name;
  std::string const text = manifest_text(manifest);
  write_new_file(manifest_file, text);
  reached("manifest_written");
  sync_to_disk(manifest_file);
  require_equal(manifest_file, digest_of(manifest_file_name, text));
  sync_to_disk(directory);
  reached("manifest_synced");
}

namespace {

/// Writes what is not a tensor, the manifest last.
void write_state(fs::path const& directory, CheckpointIndex const& index, std::vector<FileDigest> const& tensor_files,
                 CheckpointStore::Observer const& reached) {
  fs::path const state_file = directory / state_file_name;
  std::string const bytes = state_file_bytes(index);
  write_new_file(state_file, bytes);
  reached("state_written");
  sync_to_disk(state_file);
  reached("state_synced");
  Manifest manifest{index.contents.state.step, {digest_of(state_file_name, bytes)}};
  require_equal(state_file, manifest.files.front());
  reached("read_back");
  manifest.files.insert(manifest.files.end(), tensor_files.begin(), tensor_files.end());
  write_manifest(directory, manifest, reached);
}

}  // namespace

std::string checkpoint_directory_name(std::int64_t step) {
  return fmt::format("step-{:08}", step);
}

std::optional<std::int64_t> checkpoint_step(std::string const& directory_name) {
  constexpr std::size_t prefix = 5;
  if (!directory_name.starts_with("step-") || directory_name.size() > prefix + 18 ||
      directory_name.find_first_not_of("0123456789", prefix) != std::string::npos || directory_name.size() == prefix) {
    return std::nullopt;
  }
  std::int64_t const step = std::stoll(directory_name.substr(prefix));
  return checkpoint_directory_name(step) == directory_name ? std::optional(step) : std::nullopt;
}

CheckpointStore::CheckpointStore(fs::path directory, std::int64_t keep)
    : directory_(std::move(directory)), keep_(std::max(keep, min_kept)) {}

std::int64_t CheckpointStore::planned_bytes(std::vector<StreamedTensor> const& tensors) {
  return plan_tensor_files(tensors, 1).files.front().image->size();
}

std::int64_t CheckpointStore::free_bytes() const {
  fs::path place = fs::absolute(directory_);
  while (!fs::exists(place) && place.has_relative_path()) {
    place = place.parent_path();
  }
  std::int64_t leftovers = 0;
  if (place == fs::absolute(directory_)) {
    for (auto const& entry : fs::directory_iterator(directory_)) {
      leftovers += is_unfinished(entry.path()) ? bytes_below(entry.path()) : 0;
    }
  }
  std::int64_t const free = free_bytes_at(place);
  return free + std::min(leftovers, std::numeric_limits<std::int64_t>::max() - free);
}

std::string CheckpointStore::temporary_name(std::string const& what) const {
  return std::string(temporary_prefix) + what + "-" + host_name() + "-" + std::to_string(::getpid());
}

bool CheckpointStore::prepare(Communicator const& world, Writing& writing, std::int64_t bytes,
                              Observer const& reached) const {
  writing.result.directory = path_of(writing.step);
  on_rank_0(world, [&] {
    make_directory(directory_);
    writing.lock.emplace(directory_ / store_lock_name);
  });
  if (keep_existing(world, writing)) {
    return false;
  }
  on_rank_0(world, [&] {
    remove_leftovers(*writing.lock, writing.result);
    if (std::int64_t const free = free_bytes_at(directory_); free < bytes) {
      throw Error("{}: {} bytes are needed, {} are free", directory_.string(), bytes, free);
    }
    writing.unfinished.emplace(directory_ / temporary_name(checkpoint_directory_name(writing.step)));
    reached("temporary_created");
  });
  writing.place = broadcast_text(world, writing.unfinished ? writing.unfinished->path().string() : "");
  return true;
}

void CheckpointStore::publish(Writing& writing, Observer const& reached) {
  if (writing.replaces) {
    replace(writing);
  } else {
    writing.unfinished->rename_to(writing.result.directory);
  }
  reached("renamed");
  sync_to_disk(directory_);
  reached("parent_synced");
  rejected_.erase(writing.step);  // written again
  try {
    // If its record cannot be read now, an older one must not say which is the best: nothing is removed.
    std::int64_t const recorded = read_state(writing.result.directory).best_checkpoint();
    auto entries = usable(writing.step);
    std::int64_t const best = recorded > 0 ? recorded : heddle::linked_best(entries);
    if (best > 0 && !flag_best(entries, best)) {
      flag_best(entries, best_of(entries).step);
    }
    if (std::string const problem = link_best(entries); !problem.empty()) {
      writing.result.notes.push_back(problem);
    }
    prune(entries);
  } catch (std::exception const& error) {
    writing.result.notes.push_back(std::string("old checkpoints could not be removed: ") + error.what());
  }
  reached("pruned");
}

CommitResult CheckpointStore::commit(Communicator const& world, CheckpointContents const& contents,
                                     TensorStream& tensors, std::int64_t writers, Observer const& observe) {
  Observer const reached = observe ? observe : [](std::string_view) {};
  Writing writing;
  writing.step = broadcast_value(world, contents.state.step);
  writing.pending = contents.state.validation_pending;
  write_step(writing.step, [&] {
    std::vector<int> const ranks = Hosts::gather(world).writers(writers);
    TensorFiles const planned = plan_tensor_files(tensors.tensors(), std::ssize(ranks));
    if (!prepare(world, writing, bytes_of(contents, planned), reached)) {
      return;
    }
    WrittenTensors const written = write_tensor_files(world, {ranks, planned, writing.place, true, reached}, tensors);
    note_times(written, writing.step, writing.result);
    on_rank_0(world, [&] {
      write_state(writing.place, {contents, planned.tensors}, written.files, reached);
      publish(writing, reached);
    });
  });
  return writing.result;
}

bool CheckpointStore::keep_existing(Communicator const& world, Writing& writing) const {
  fs::path const existing = path_of(writing.step);
  bool found = false;
  on_rank_0(world, [&] { found = fs::exists(fs::symlink_status(existing)); });
  if (!broadcast_value(world, found)) {
    return false;
  }
  if (std::string const problem = checkpoint_problem(existing, Check::all_bytes, world); !problem.empty()) {
    on_rank_0(world, [&] {
      writing.result.notes.push_back("moved aside to " + move_aside(existing).filename().string() + ": " + problem);
    });
    return false;
  }
  on_rank_0(world, [&] { writing.replaces = !writing.pending && read_state(existing).validation_pending; });
  writing.replaces = broadcast_value(world, writing.replaces);
  if (!writing.replaces) {
    writing.result.already_there = true;
    writing.result.notes.push_back(existing.string() + ": was there already and verifies; it was kept");
  }
  return !writing.replaces;
}

/// Renames a checkpoint and returns its new path. It is not deleted: a damaged checkpoint is evidence, and the rest of
/// it may still be needed.
fs::path CheckpointStore::move_aside(fs::path const& checkpoint) const {
  for (int attempt = 0;; ++attempt) {
    std::string const suffix = attempt == 0 ? "" : "-" + std::to_string(attempt);
    fs::path const aside = directory_ / (std::string(rejected_prefix) + checkpoint.filename().string() + suffix);
    if (rename_without_replacing(checkpoint, aside)) {
      sync_to_disk(directory_);
      return aside;
    }
  }
}

/// Puts a checkpoint in the place of that of the same step, which is removed. Where the file system cannot exchange
/// names, the old one has the name of a rejected one until the new one is in its place: that is never removed.
void CheckpointStore::replace(Writing& writing) const {
  fs::path const& place = writing.result.directory;
  if (writing.unfinished->exchange_with(place)) {
    return;
  }
  fs::path const old = move_aside(place);
  try {
    writing.unfinished->rename_to(place);
  } catch (Error const&) {
    rename_without_replacing(old, place);
    throw;
  }
  sync_to_disk(directory_);
  std::error_code ignored;
  fs::remove_all(old, ignored);
}

/// Removes unfinished entries. Writers share the store's lock. A process that gets it exclusively knows that no writer
/// is alive, so that all unfinished entries were left by dead ones.
void CheckpointStore::remove_leftovers(FileLock& lock, CommitResult& result) const {
  bool const alone = lock.try_take(FileLock::Kind::exclusive) == FileLock::Result::taken;
  for (auto const& entry : fs::directory_iterator(directory_)) {
    if (is_unfinished(entry.path()) && (alone || is_old(entry.path()))) {
      std::error_code failure;
      fs::remove_all(entry.path(), failure);
      result.notes.push_back(entry.path().string() + (failure ? ": could not be removed: " + failure.message()
                                                              : ": removed, its writer did not finish it"));
    }
  }
  lock.take(FileLock::Kind::shared);
}

void CheckpointStore::remove(fs::path const& checkpoint) const {
  fs::path const doomed = directory_ / temporary_name("removed-" + checkpoint.filename().string());
  fs::rename(checkpoint, doomed);
  fs::remove_all(doomed);
}

std::vector<CheckpointEntry> CheckpointStore::usable(std::int64_t newest) const {
  std::vector<CheckpointEntry> entries;
  for (auto const& [step, directory] : find_steps(directory_)) {
    if (step <= newest && !rejected_.contains(step) && checkpoint_problem(directory, Check::sizes).empty()) {
      entries.push_back({.step = step, .directory = directory, .problem = {}});
    }
  }
  return entries;
}

/// Neither counts nor removes what is not usable: a checkpoint that is visibly torn, one that did not verify, and one
/// that is newer than the one just written, because the run did not continue from it.
void CheckpointStore::prune(std::vector<CheckpointEntry> const& usable) const {
  std::optional<std::int64_t> protected_step;
  for (CheckpointEntry const& entry : usable) {
    protected_step = protected_ && entry.step <= *protected_ ? entry.step : protected_step;
  }
  std::int64_t kept = 0;
  for (CheckpointEntry const& entry : std::views::reverse(usable)) {
    if (++kept > keep_ && !entry.best && entry.step != protected_step) {
      remove(entry.directory);
    }
  }
}

std::vector<CheckpointEntry> CheckpointStore::list(Check check) const {
  constexpr int max_looks = 100;
  std::map<std::int64_t, CheckpointEntry> found;
  bool removed = true;
  for (int look = 0; removed && look < max_looks; ++look) {  // a run that removes some meanwhile has written others
    for (auto const& [step, directory] : find_steps(directory_)) {
      if (!found.contains(step)) {
        found[step] = {step, directory, bytes_below(directory), false, checkpoint_problem(directory, check)};
      }
    }
    removed = std::erase_if(
                  found, [](auto const& each) { return !fs::exists(fs::symlink_status(each.second.directory)); }) > 0;
  }
  std::vector<CheckpointEntry> entries;
  std::ranges::move(std::views::values(found), std::back_inserter(entries));
  flag_best(entries, best_of(entries).step);
  return entries;
}

std::optional<std::int64_t> CheckpointStore::newest_step() const {
  auto const steps = find_steps(directory_);
  return steps.empty() ? std::nullopt : std::optional(steps.rbegin()->first);
}

std::optional<Checkpoint> CheckpointStore::newest_verified(Report const& report, Communicator const& world) {
  std::map<std::int64_t, fs::path> steps;  // rank 0's, as what is there may change while others look
  bool expected = false;
  on_rank_0(world, [&] {
    steps = find_steps(directory_);
    expected = !steps.empty() || has_rejected(directory_);
  });
  std::vector<std::string> rejected;  // reported once: to the caller, or in the error where none verifies
  auto newest = steps.rbegin();
  for (auto left = broadcast_value(world, steps.size()); left > 0; --left) {
    fs::path const directory = broadcast_text(world, world.rank() == 0 ? (newest++)->second.string() : "");
    try {
      on_rank_0(world, [&] {
        if (fs::is_symlink(directory)) {
          throw DataError("is a symbolic link");
        }
      });
      Checkpoint verified = Checkpoint::open(directory, world);
      if (report && world.rank() == 0) {
        std::for_each(rejected.begin(), rejected.end(), report);
      }
      return verified;
    } catch (std::bad_alloc const&) {
      throw;
    } catch (std::exception const& error) {
      rejected.push_back(directory.filename().string() + " rejected: " + error.what());
      rejected_.insert(checkpoint_step(directory.filename().string()).value_or(-1));
    }
  }
  if (broadcast_value(world, expected)) {
    std::string reasons;
    for (std::string const& reason : rejected) {
      reasons += "\n  " + reason;
    }
    throw DataError(directory_.string() + ": no checkpoint verifies" + reasons);
  }
  return std::nullopt;
}

Checkpoint CheckpointStore::of_step(std::int64_t step, Communicator const& world) const {
  on_rank_0(world, [&] {
    if (fs::exists(fs::symlink_status(path_of(step)))) {
      return;
    }
    auto const steps = find_steps(directory_);
    throw DataError("{} has no checkpoint of step {}; {}", directory_.string(), step,
                    steps.empty() ? "it has none at all"
                                  : fmt::format("it has the steps {}", fmt::join(std::views::keys(steps), ", ")));
  });
  return Checkpoint::open(path_of(step), world);
}

Checkpoint CheckpointStore::go_back(std::int64_t step, Report const& report, Communicator const& world) {
  Checkpoint chosen = of_step(step, world);
  on_rank_0(world, [&] {
    for (auto const& [other, directory] : find_steps(directory_)) {
      if (other > step) {
        report("moved aside to " + move_aside(directory).filename().string() + ": the run goes back to step " +
               std::to_string(step));
      }
    }
    if (std::string const problem = link_best(step); !problem.empty()) {
      report(problem);
    }
  });
  return chosen;
}

}  // namespace heddle
