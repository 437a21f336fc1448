#include "pruning.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <optional>
#include <ranges>
#include <set>

#include "run/directory/run_directory.hpp"

namespace heddle {

namespace {

/// Finds the entries that stay: the newest that the rule keeps, the best one and multiples. All of their bytes are
/// read: a damaged one must not take a good one's place, nor may its record say which is the best.
std::set<std::int64_t> steps_to_keep(CheckpointStore const& store, PruningRule const& rule,
                                     std::vector<CheckpointEntry>& entries) {
  std::set<std::int64_t> read;
  while (true) {
    std::set<std::int64_t> kept;
    auto const best = best_of(entries).step;
    bool damaged = false;
    for (CheckpointEntry& entry : entries | std::views::reverse) {
      bool const wanted = std::ssize(kept) < rule.keep || entry.step == best ||
                          (rule.keep_every > 0 && entry.step % rule.keep_every == 0);
      if (!entry.problem.empty() || !wanted) {
        continue;
      }
      kept.insert(entry.step);
      if (read.insert(entry.step).second) {
        try {
          store.of_step(entry.step);
        } catch (DataError const& error) {
          entry.problem = error.what();
          damaged = true;
          break;
        }
      }
    }
    if (!damaged) {
      return kept;
    }
  }
}

}  // namespace

PrunedCheckpoints prune_checkpoints(std::filesystem::path const& run, PruningRule const& rule, bool dry_run) {
  std::filesystem::path const directory = run / "checkpoints";
  if (!std::filesystem::is_directory(directory)) {
    throw DataError("{}: is not the directory of a run with checkpoints", run.string());
  }
  std::optional<RunDirectory> const held =
      dry_run ? std::nullopt : std::optional<RunDirectory>(RunDirectory::open(run));
  CheckpointStore const store(directory, rule.keep);
  PrunedCheckpoints result;
  std::vector<CheckpointEntry> entries = store.list(CheckpointStore::Check::sizes);
  std::set<std::int64_t> const kept = steps_to_keep(store, rule, entries);
  if (auto const missing = best_of(entries).missing) {
    result.notes.push_back(fmt::format("the best checkpoint, of step {}, is not there or does not verify", *missing));
  }
  for (CheckpointEntry& entry : entries | std::views::reverse) {
    if (!entry.problem.empty()) {
      result.notes.push_back(fmt::format("{} rejected: {}", entry.directory.filename().string(), entry.problem));
      continue;
    }
    (kept.contains(entry.step) ? result.kept : result.removed).push_back(std::move(entry));
  }
  if (result.kept.empty() && !entries.empty()) {
    throw DataError("{}: no checkpoint verifies\n  {}", directory.string(), fmt::join(result.notes, "\n  "));
  }
  std::ranges::reverse(result.kept);
  std::ranges::reverse(result.removed);
  for (CheckpointEntry const& entry : result.removed) {
    if (!dry_run) {
      store.remove(entry.directory);
    }
  }
  return result;
}

}  // namespace heddle
