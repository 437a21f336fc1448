#pragma once

#include <boost/json.hpp>
#include <heddle/run.hpp>
#include <string>
#include <vector>

#include "measure.hpp"

namespace heddle {

/// At most 2 * buckets + 2 points: the first and the last, and the smallest and the largest value of each of `buckets`
/// equal parts of the steps, in their order. No peak is lost, and no stretch that is not finite.
MetricSeries downsample(MetricSeries const& series, std::size_t buckets);

/// A sentence for each number that is not finite somewhere: "valid_loss is not finite from step 40 on".
std::vector<std::string> describe_not_finite(RunMetrics const& metrics);

/// {"series": {KEY: {"steps": […], "values": […], "not_finite": [[first, last], …]}}, "unreadable",
/// "not_finite": [the sentences], "samples": [{"step", "rows"}]}. Of many samples some are left out, never the last.
boost::json::object to_json(RunMetrics const& metrics);

/// The digest of the validation set by which a line of metrics.jsonl was measured; "" where the line does not name it,
/// as older ones.
std::string valid_dataset_of(boost::json::object const& line, std::string const& set);

/// The finite values of a measure in a metrics.jsonl, by step. Values of different validation sets are not compared:
/// they are those of the set with this digest, or, where none is given, of the set of the newest value.
std::map<std::int64_t, double> measured_values(std::filesystem::path const& metrics, Measure const& measure,
                                               std::optional<std::string> const& digest = std::nullopt);

}  // namespace heddle
