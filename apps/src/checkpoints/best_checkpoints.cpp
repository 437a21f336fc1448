#include "best_checkpoints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <iterator>
#include <optional>
#include <utility>

#include "inspection/run/metrics.hpp"
#include "inspection/run/run_files.hpp"
#include "inspection/run/run_view.hpp"
#include "report/json_text.hpp"
#include "run_directory/run_progress.hpp"

namespace heddle {

namespace {

/// The part of a run's report about its validations; empty for a run of an older version.
struct Validations {
  boost::json::object report;

  /// The metric by which the run itself chooses.
  std::string best_metric() const {
    std::string_view const name = text_of(report, "best_metric");
    return name.empty() ? "loss" : std::string(name);
  }
  /// Whether a higher value of this key of the metrics is better; of built-in metrics that is known anyway.
  bool higher_is_better(std::string const& key) const {
    auto const& measure = object_of(object_of(report, "validation"), key);
    auto const* const higher = measure.if_contains("higher_is_better");
    return higher != nullptr && higher->is_bool() ? higher->get_bool()
                                                  : !key.starts_with("valid_loss") && !key.starts_with("valid_ter");
  }
};

Validations validations_of(std::filesystem::path const& run) {
  std::vector<std::string> notes;  // a run without a report is ordered, too
  auto report = run.empty() ? std::nullopt : read_run_file(run / report_name, "", notes);
  return {report ? std::move(*report) : boost::json::object()};
}

}  // namespace

std::vector<CheckpointEntry> ordered(std::vector<CheckpointEntry> entries, std::string const& order) {
  std::ranges::reverse(entries);
  if (order == "newest" || entries.empty()) {
    return entries;
  }
  auto const run = run_directory_of(entries.front().directory);
  Validations const validations = validations_of(run);
  std::string const key = "valid_" + (order == "best" ? validations.best_metric() : order);
  RunMetrics const metrics = run.empty() ? RunMetrics() : read_metrics(run / metrics_name);
  auto const series = metrics.series.find(key);
  double const sign = validations.higher_is_better(key) ? -1 : 1;
  std::vector<std::pair<double, CheckpointEntry>> measured;
  for (CheckpointEntry& entry : entries) {
    if (auto const value = series == metrics.series.end() ? std::nullopt : series->second.at(entry.step)) {
      measured.emplace_back(sign * *value, std::move(entry));
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
