#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/checkpoint/manifest.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/file_lock.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <map>
#include <new>
#include <ranges>
#include <utility>

#include "files/file_descriptor.hpp"
#include "parallel/together.hpp"
#include "state_file.hpp"
#include "tensors/hosts.hpp"
#include "tensors/tensor_writer.hpp"
#include "writing.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view temporary_prefix = ".tmp-";
constexpr std::string_view rejected_prefix = "rejected-";
constexpr char const* best_name = "best";
constexpr char const* lock_name = ".lock";
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

/// The problem of a checkpoint, "" if it has none. Collective over `world`, which matters for all_bytes.
std::string problem_of(fs::path const& directory, CheckpointStore::Check check,
                       Communicator const& world = Communicator::self()) {
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

/// True if a leftover has not changed for a day: then no process is still writing it, even without file locks.
bool is_old(fs::path const& path) {
  return fs::last_write_time(path) + leftover_age < fs::file_time_type::clock::now();
}

/// Throws Error in advance if the file system has no room; quotas show only when writing.
void check_free_space(fs::path const& directory, std::int64_t needed) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) == 0) {
    std::uint64_t const free = std::uint64_t{status.f_bavail} * status.f_frsize;
    if (free < static_cast<std::uint64_t>(needed)) {
      throw Error(fmt::format("{}: {} bytes are needed, {} are free", directory.string(), needed, free));
    }
  }
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
  auto bytes =
      static_cast<std::int64_t>(contents.config.size() + contents.source_model.size() + contents.target_model.size());
  for (TensorFile const& file : planned.files) {
    bytes += file.image->size();
  }
  return bytes;
}

}  // namespace

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

/// True if the user named one checkpoint and not a store of them.
bool is_one_checkpoint(fs::path const& place) {
  fs::path const name = place.has_filename() ? place.filename() : place.parent_path().filename();
  std::error_code ignored;
  return checkpoint_step(name.string()).has_value() || fs::exists(place / manifest_file_name, ignored);
}

CheckpointStore store_at(fs::path const& place) {
  std::error_code ignored;
  if (!fs::is_directory(place, ignored)) {
    std::string const reason =
        fs::exists(place, ignored) ? place.string() + ": is not a directory" : missing_file(place);
    throw DataError(reason + "; expected the directory of a run, of its checkpoints, or of one checkpoint");
  }
  return {fs::is_directory(place / "checkpoints") ? place / "checkpoints" : place, min_kept};
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

std::string CheckpointStore::temporary_name(std::string const& what) const {
  return std::string(temporary_prefix) + what + "-" + host_name() + "-" + std::to_string(::getpid());
}

bool CheckpointStore::prepare(Communicator const& world, Writing& writing, std::int64_t bytes,
                              Observer const& reached) const {
  writing.result.directory = path_of(writing.step);
  on_rank_0(world, [&] {
    make_directory(directory_);
    writing.lock.emplace(directory_ / lock_name);
  });
  if (keep_existing(world, writing.step, writing.result)) {
    return false;
  }
  on_rank_0(world, [&] {
    remove_leftovers(*writing.lock, writing.result);
    check_free_space(directory_, bytes);
    writing.unfinished.emplace(directory_ / temporary_name(checkpoint_directory_name(writing.step)));
    reached("temporary_created");
  });
  writing.place = broadcast_text(world, writing.unfinished ? writing.unfinished->path().string() : "");
  return true;
}

void CheckpointStore::publish(Writing& writing, Observer const& reached) {
  writing.unfinished->rename_to(writing.result.directory);
  reached("renamed");
  sync_to_disk(directory_);
  reached("parent_synced");
  prune(writing.step, writing.result);
  reached("pruned");
}

CommitResult CheckpointStore::commit(Communicator const& world, CheckpointContents const& contents,
                                     TensorStream& tensors, std::int64_t writers, Observer const& observe) {
  Observer const reached = observe ? observe : [](std::string_view) {};
  Writing writing;
  writing.step = broadcast_value(world, contents.state.step);
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

bool CheckpointStore::keep_existing(Communicator const& world, std::int64_t step, CommitResult& result) const {
  fs::path const existing = path_of(step);
  bool found = false;
  on_rank_0(world, [&] { found = fs::exists(fs::symlink_status(existing)); });
  if (!broadcast_value(world, found)) {
    return false;
  }
  std::string const problem = problem_of(existing, Check::all_bytes, world);
  if (problem.empty()) {
    result.already_there = true;
    result.notes.push_back(existing.string() + ": was there already and verifies; it was kept");
    return true;
  }
  on_rank_0(world, [&] {
    result.notes.push_back("moved aside to " + move_aside(existing).filename().string() + ": " + problem);
  });
  return false;
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

/// Removes unfinished entries. Writers share the store's lock. A process that gets it exclusively knows that no writer
/// is alive, so that all unfinished entries were left by dead ones.
void CheckpointStore::remove_leftovers(FileLock& lock, CommitResult& result) const {
  bool const alone = lock.try_take(FileLock::Kind::exclusive) == FileLock::Result::taken;
  for (auto const& entry : fs::directory_iterator(directory_)) {
    if (entry.path().filename().string().starts_with(temporary_prefix) && (alone || is_old(entry.path()))) {
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

void CheckpointStore::prune(std::int64_t committed_step, CommitResult& result) {
  rejected_.erase(committed_step);  // written again
  try {
    auto const steps = find_steps(directory_);
    std::optional<std::int64_t> const best = best_step();
    std::optional<std::int64_t> protected_step;
    for (auto const& [step, directory] : steps) {
      protected_step = protected_ && step <= *protected_ ? step : protected_step;
    }
    std::int64_t kept = 0;
    for (auto const& [step, directory] : std::views::reverse(steps)) {
      // A visibly torn checkpoint neither counts as kept nor is deleted. The same holds for one that did not verify,
      // and for one that is newer than the one just written: the run did not continue from it.
      bool const rejected = rejected_.contains(step);
      if (step > committed_step || rejected || !problem_of(directory, Check::sizes).empty()) {
        continue;
      }
      if (++kept <= keep_ || step == committed_step || step == best || step == protected_step) {
        continue;
      }
      remove(directory);
    }
  } catch (std::exception const& error) {
    result.notes.push_back(std::string("old checkpoints could not be removed: ") + error.what());
  }
}

void CheckpointStore::mark_best(std::int64_t step) {
  if (!fs::is_directory(path_of(step))) {
    throw Error(path_of(step).string() + ": there is no such checkpoint to mark as the best");
  }
  fs::path const link = directory_ / temporary_name("best");
  FileLock lock(directory_ / lock_name);
  lock.take(FileLock::Kind::shared);
  try {
    fs::remove(link);
    fs::create_directory_symlink(checkpoint_directory_name(step), link);
    move_best_aside();
    fs::rename(link, directory_ / best_name);
  } catch (fs::filesystem_error const& error) {
    throw Error((directory_ / best_name).string() + ": could not be pointed at step " + std::to_string(step) + ": " +
                error.what());
  }
  sync_to_disk(directory_);
}

void CheckpointStore::settle_best(std::int64_t step) {
  auto const marked = best_step();
  if (marked != step && fs::is_directory(path_of(step))) {
    mark_best(step);
  } else if (marked > step) {
    fs::remove(directory_ / best_name);
    sync_to_disk(directory_);
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

std::optional<std::int64_t> CheckpointStore::best_step() const {
  std::error_code failure;
  fs::path const target = fs::read_symlink(directory_ / best_name, failure);
  return failure ? std::nullopt : checkpoint_step(target.string());
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
    throw DataError(fmt::format("{} has no checkpoint of step {}; {}", directory_.string(), step,
                                steps.empty()
                                    ? "it has none at all"
                                    : fmt::format("it has the steps {}", fmt::join(std::views::keys(steps), ", "))));
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
    settle_best(chosen.state().best_step);
  });
  return chosen;
}

std::vector<CheckpointEntry> CheckpointStore::list(Check check) const {
  std::optional<std::int64_t> const best = best_step();
  std::vector<CheckpointEntry> entries;
  for (auto const& [step, directory] : find_steps(directory_)) {
    entries.push_back({step, directory, bytes_below(directory), step == best, problem_of(directory, check)});
  }
  return entries;
}

std::vector<CheckpointEntry> list_checkpoints(fs::path const& place, CheckpointStore::Check check) {
  if (!is_one_checkpoint(place) || !fs::exists(place)) {
    return store_at(place).list(check);
  }
  fs::path const directory = fs::canonical(place);
  auto const step = checkpoint_step(directory.filename().string());
  return {{step.value_or(0), directory, bytes_below(directory), false, problem_of(directory, check)}};
}

}  // namespace heddle
