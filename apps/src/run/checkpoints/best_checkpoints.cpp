#include "best_checkpoints.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/metrics/metric.hpp>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "run/directory/json_text.hpp"
#include "run/directory/run_progress.hpp"
#include "run/metrics/metrics.hpp"
#include "run/report/run_files.hpp"

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
  /// Whether a higher value of a measure is better: the report says it of those of the run's last start, and of
  /// built-in metrics it is known anyway.
  std::optional<bool> higher_is_better(Measure const& measure) const {
    auto const& entry = object_of(object_of(report, "validation"), measure.key());
    if (auto const* const higher = entry.if_contains("higher_is_better"); higher != nullptr && higher->is_bool()) {
      return higher->get_bool();
    }
    if (measure.metric == "loss" || measure.metric == "accuracy") {
      return measure.metric == "accuracy";
    }
    MetricRegistry built_in;
    register_metrics(built_in);
    MetricRegistry::Entry const* const found = built_in.find(measure.metric);
    return found == nullptr ? std::nullopt : std::optional(found->metric.higher_is_better);
  }
};

/// The measure of "METRIC" or "METRIC/SET". The perplexity orders as the loss does, of which it is the exponential.
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
  std::filesystem::path const checkpoints = entries.front().directory.parent_path();
  auto const run = run_directory_of(entries.front().directory);
  Validations const validations = validations_of(run);
  Measure const measure = measure_named(order == "best" ? validations.best_metric() : order);
  auto const values = run.empty() ? std::map<std::int64_t, double>() : measured_values(run / metrics_name, measure);
  std::vector<std::pair<double, CheckpointEntry>> measured;
  for (CheckpointEntry& entry : entries) {
    if (auto const value = values.find(entry.step); value != values.end()) {
      measured.emplace_back(value->second, std::move(entry));
    }
  }
  if (measured.empty()) {
    throw DataError("{}: {} has no {} of a step whose checkpoint is there", checkpoints.string(), metrics_name,
                    measure.key());
  }
  auto const higher = validations.higher_is_better(measure);
  if (!higher) {
    throw DataError("{}: whether a higher or a lower {} is better is not known: {} does not name this metric",
                    checkpoints.string(), measure.metric, report_name);
  }
  std::ranges::stable_sort(measured, {}, [&](auto const& each) { return *higher ? -each.first : each.first; });
  entries.clear();
  std::ranges::transform(measured, std::back_inserter(entries), [](auto& each) { return std::move(each.second); });
  return entries;
}

Measure deciding_measure(std::filesystem::path const& run) {
  return measure_named(validations_of(run).best_metric());
}

BestValue best_with_checkpoint(std::filesystem::path const& checkpoints, Measure const& measure,
                               std::string const& digest, std::int64_t newest) {
  BestValue best{measure};
  auto const run = run_directory_of(checkpoints);
  for (auto const& [step, value] :
       run.empty() ? std::map<std::int64_t, double>() : measured_values(run / metrics_name, measure, digest)) {
    if (step <= newest && (best.step == 0 || measure.better(value, best.value)) &&
        std::filesystem::is_directory(checkpoints / checkpoint_directory_name(step))) {
      best.value = value;
      best.step = step;
    }
  }
  return best;
}

}  // namespace heddle
