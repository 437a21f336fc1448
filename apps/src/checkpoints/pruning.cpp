#include "pruning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <optional>
#include <ranges>

#include "run_directory/run_directory.hpp"

namespace heddle {

PrunedCheckpoints prune_checkpoints(std::filesystem::path const& run, PruningRule const& rule, bool dry_run) {
  std::filesystem::path const directory = run / "checkpoints";
  if (!std::filesystem::is_directory(directory)) {
    throw DataError(fmt::format("{}: is not the directory of a run with checkpoints", run.string()));
  }
  std::optional<RunDirectory> const held =
      dry_run ? std::nullopt : std::optional<RunDirectory>(RunDirectory::open(run));
  CheckpointStore store(directory, rule.keep);
  PrunedCheckpoints result;
  auto const newest = store.newest_verified([&](std::string const& rejected) { result.notes.push_back(rejected); });
  std::int64_t const verified = newest ? newest->state().step : -1;
  std::int64_t complete = 0;  // so far, from the newest on
  std::vector<CheckpointEntry> entries = store.list(CheckpointStore::Check::sizes);
  for (CheckpointEntry& entry : entries | std::views::reverse) {
    if (entry.step > verified) {
      continue;  // was rejected
    }
    if (!entry.problem.empty()) {
      result.notes.push_back(fmt::format("{} rejected: {}", entry.directory.filename().string(), entry.problem));
      continue;
    }
    bool const kept = ++complete <= rule.keep || entry.best || entry.step == verified ||
                      (rule.keep_every > 0 && entry.step % rule.keep_every == 0);
    (kept ? result.kept : result.removed).push_back(std::move(entry));
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
