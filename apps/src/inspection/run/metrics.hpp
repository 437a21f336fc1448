#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// A number over the steps of a run, ascending.
struct MetricSeries {
  std::vector<double> steps;
  std::vector<double> values;

  /// The value of exactly this step, if there is one.
  std::optional<double> at(std::int64_t step) const;
};

/// At most 2 * buckets + 2 points: the first and the last, and the least and the greatest value of each of `buckets`
/// equal parts of the steps, in their order. No peak is lost.
MetricSeries downsample(MetricSeries const& series, std::size_t buckets);

/// The content of a metrics.jsonl.
struct RunMetrics {
  /// Every number beside the step, by its key; those of attention_entropy by "attention_entropy.PATH".
  std::map<std::string, MetricSeries> series;
  std::map<std::string, double> communicated_bytes;  ///< over all lines, by "GROUP.COLLECTIVE"
  std::int64_t lines = 0;
  std::int64_t unreadable = 0;  ///< lines that are no JSON object with a step: torn by a kill
};
/// Throws DataError for a file that is absent or not regular.
RunMetrics read_metrics(std::filesystem::path const& path);

/// {"series": {KEY: {"steps": […], "values": […]}}, "lines", "unreadable", "communication": {NAME: bytes}}
boost::json::object to_json(RunMetrics const& metrics);

}  // namespace heddle
