#include "pruning.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <optional>
#include <ranges>

#include "run_directory/run_directory.hpp"

namespace heddle {

namespace {

/// Reads a checkpoint that is to stay: one that is damaged must not take the place of a good one.
void check_bytes(CheckpointStore const& store, CheckpointEntry& entry) {
  if (!entry.problem.empty()) {
    return;
  }
  try {
    store.of_step(entry.step);
  } catch (DataError const& error) {
    entry.problem = error.what();
  }
}

}  // namespace

PrunedCheckpoints prune_checkpoints(std::filesystem::path const& run, PruningRule const& rule, bool dry_run) {
  std::filesystem::path const directory = run / "checkpoints";
  if (!std::filesystem::is_directory(directory)) {
    throw DataError(fmt::format("{}: is not the directory of a run with checkpoints", run.string()));
  }
  std::optional<RunDirectory> const held =
      dry_run ? std::nullopt : std::optional<RunDirectory>(RunDirectory::open(run));
  CheckpointStore const store(directory, rule.keep);
  PrunedCheckpoints result;
  std::int64_t counted = 0;  // of the newest ones that verify
  std::vector<CheckpointEntry> entries = store.list(CheckpointStore::Check::sizes);
  for (CheckpointEntry& entry : entries | std::views::reverse) {
    bool const wanted = counted < rule.keep || entry.best || (rule.keep_every > 0 && entry.step % rule.keep_every == 0);
    if (wanted) {
      check_bytes(store, entry);
    }
    if (!entry.problem.empty()) {
      result.notes.push_back(fmt::format("{} rejected: {}", entry.directory.filename().string(), entry.problem));
      continue;
    }
    counted += wanted ? 1 : 0;
    (wanted ? result.kept : result.removed).push_back(std::move(entry));
  }
  if (result.kept.empty() && !entries.empty()) {
    throw DataError(
        fmt::format("{}: no checkpoint verifies\n  {}", directory.string(), fmt::join(result.notes, "\n  ")));
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
