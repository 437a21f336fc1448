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
  /// Lines one after another in which the number is not finite: the steps of the first and of the last.
  struct Stretch {
    double first = 0;
    double last = 0;

    bool operator==(Stretch const&) const = default;
  };

  std::vector<double> steps;  ///< the steps of the finite values
  std::vector<double> values;
  std::vector<Stretch> not_finite = {};  ///< ascending

  /// The last step, with a finite value or without.
  std::optional<double> last_step() const;
  /// Whether the last value is not finite.
  bool ends_not_finite() const;

  /// The value of exactly this step, if there is one.
  std::optional<double> at(std::int64_t step) const;
};

/// At most 2 * buckets + 2 points: the first and the last, and the smallest and the largest value of each of `buckets`
/// equal parts of the steps, in their order. No peak is lost, and no stretch that is not finite.
MetricSeries downsample(MetricSeries const& series, std::size_t buckets);

/// The translations of the first pairs that a validation made: [[source, reference, translation], …].
struct ValidationSamples {
  double step = 0;
  boost::json::array rows;
};

/// The content of a metrics.jsonl.
struct RunMetrics {
  /// Every number except the step, by its key; those of attention_entropy as "attention_entropy.PATH",
  /// those of corpus_epochs as "corpus_epochs.CORPUS".
  std::map<std::string, MetricSeries> series;
  std::vector<ValidationSamples> samples;  ///< by step, ascending
  std::int64_t unreadable = 0;             ///< lines that are not a JSON object with a step: torn by a kill

  /// The value of a key after exactly this step, if there is one.
  std::optional<double> at(std::string const& key, std::int64_t step) const;
};
/// Throws DataError for a file that is absent or not regular.
RunMetrics read_metrics(std::filesystem::path const& path);

/// A sentence for each number that is not finite somewhere: "valid_loss is not finite from step 40 on".
std::vector<std::string> describe_not_finite(RunMetrics const& metrics);

/// {"series": {KEY: {"steps": […], "values": […], "not_finite": [[first, last], …]}}, "unreadable",
/// "not_finite": [the sentences], "samples": [{"step", "rows"}]}. Of many samples some are left out, never the last.
boost::json::object to_json(RunMetrics const& metrics);

}  // namespace heddle
