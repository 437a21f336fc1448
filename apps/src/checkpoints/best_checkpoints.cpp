#include "best_checkpoints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <iterator>
#include <optional>
#include <utility>

#include "inspection/run/metrics.hpp"
#include "inspection/run/run_view.hpp"
#include "run_directory/run_progress.hpp"

namespace heddle {

std::vector<CheckpointEntry> ordered(std::vector<CheckpointEntry> entries, std::string const& order) {
  std::ranges::reverse(entries);
  if (order == "newest" || entries.empty()) {
    return entries;
  }
  std::string const key = order == "bleu" ? "valid_bleu" : "valid_loss";
  auto const run = run_directory_of(entries.front().directory);
  RunMetrics const metrics = run.empty() ? RunMetrics() : read_metrics(run / metrics_name);
  auto const series = metrics.series.find(key);
  std::vector<std::pair<double, CheckpointEntry>> measured;
  for (CheckpointEntry& entry : entries) {
    if (auto const value = series == metrics.series.end() ? std::nullopt : series->second.at(entry.step)) {
      measured.emplace_back(order == "bleu" ? -*value : *value, std::move(entry));
    }
  }
  if (measured.empty()) {
    throw DataError(fmt::format("{}: {} has no {} of a step whose checkpoint is there",
                                entries.front().directory.parent_path().string(), metrics_name, key));
  }
  std::ranges::stable_sort(measured, {}, &std::pair<double, CheckpointEntry>::first);
  entries.clear();
  std::ranges::transform(measured, std::back_inserter(entries), [](auto& each) { return std::move(each.second); });
  return entries;
}

}  // namespace heddle
