#include "metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <sstream>
#include <utility>

#include "run/directory/json_text.hpp"
#include "run/directory/run_progress.hpp"

namespace heddle {
namespace {

constexpr std::size_t drawn_buckets = 500;
constexpr std::size_t shown_samples = 20;

/// A null stands for a number that is not finite.
void add(MetricSeries& series, double step, boost::json::value const& value) {
  if (series.last_step() && *series.last_step() >= step) {
    return;
  }
  if (value.is_number()) {
    series.steps.push_back(step);
    series.values.push_back(value.to_number<double>());
  } else if (series.ends_not_finite()) {
    series.not_finite.back().last = step;
  } else {
    series.not_finite.push_back({step, step});
  }
}

/// Adds the numbers of an object, each to the series `prefix` + its key.
void add_numbers(RunMetrics& metrics, double step, std::string const& prefix, boost::json::object const& object) {
  for (auto const& [key, value] : object) {
    if (key != "step" && (value.is_number() || value.is_null())) {
      add(metrics.series[prefix + std::string(key)], step, value);
    }
  }
}

/// An element of an array; "" where it is not a string.
std::string text_at(boost::json::value const& array, std::size_t index) {
  auto const* const found = array.is_array() ? array.get_array().if_contains(index) : nullptr;
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : "";
}

void add(RunMetrics& metrics, boost::json::object const& line) {
  double const step = line.at("step").to_number<double>();
  add_numbers(metrics, step, "", line);
  for (std::string const key :
       {"attention_entropy", "corpus_epochs", "corpus_nll", "tag_nll", "expert_entropy", "expert_dropped"}) {
    add_numbers(metrics, step, key + ".", object_of(line, key));
  }
  for (auto const& [layer, shares] : object_of(line, "expert_load")) {
    if (auto const read = boost::json::try_value_to<std::vector<double>>(shares)) {
      metrics.expert_load[layer] = *read;
    }
  }
  if (auto const* const samples = line.if_contains(valid_samples_key); samples != nullptr && samples->is_array()) {
    metrics.samples.push_back({step, {}});
    for (boost::json::value const& row : samples->get_array()) {
      metrics.samples.back().pairs.push_back({text_at(row, 0), text_at(row, 1), text_at(row, 2)});
    }
  }
}

boost::json::array numbers(std::vector<double> const& values) {
  boost::json::array array;
  array.reserve(values.size());
  for (double const value : values) {
    // Seven digits are more than a chart shows.
    array.emplace_back(std::stod(fmt::format("{:.7g}", value)));
  }
  return array;
}

/// At most `max` of the samples, evenly spread, with the first and the last.
boost::json::array samples_to_json(std::vector<ValidationSamples> const& samples, std::size_t max) {
  boost::json::array array;
  std::size_t const shown = std::min(samples.size(), max);
  for (std::size_t index = 0; index < shown; ++index) {
    auto const& [step, pairs] = samples[shown == 1 ? 0 : index * (samples.size() - 1) / (shown - 1)];
    boost::json::array rows;
    for (auto const& [source, reference, translation] : pairs) {
      rows.push_back(boost::json::array{source, reference, translation});
    }
    array.push_back({{"step", step}, {"rows", std::move(rows)}});
  }
  return array;
}

std::string describe(std::string const& key, MetricSeries const& series) {
  auto const& [first, last] = series.not_finite.front();
  std::size_t const more = series.not_finite.size() - 1;
  bool const to_the_end = series.ends_not_finite();
  std::string text = fmt::format("{} is not finite from step {}", key, readable_count(first));
  if (more == 0) {
    return text + (to_the_end ? " on" : fmt::format(" to {}", readable_count(last)));
  }
  return text + fmt::format(" to {} and in {} later stretch{}{}", readable_count(last), readable_count(more),
                            more == 1 ? "" : "es", to_the_end ? ", the last one up to the end" : "");
}

}  // namespace

std::optional<double> MetricSeries::last_step() const {
  if (steps.empty() && not_finite.empty()) {
    return std::nullopt;
  }
  return ends_not_finite() ? not_finite.back().last : steps.back();
}

bool MetricSeries::ends_not_finite() const {
  return !not_finite.empty() && (steps.empty() || steps.back() < not_finite.back().first);
}

std::optional<double> MetricSeries::at(std::int64_t step) const {
  auto const wanted = static_cast<double>(step);
  auto const found = std::ranges::lower_bound(steps, wanted);
  return found != steps.end() && *found == wanted
             ? std::optional(values[static_cast<std::size_t>(found - steps.begin())])
             : std::nullopt;
}

std::optional<double> RunMetrics::at(std::string const& key, std::int64_t step) const {
  auto const found = series.find(key);
  return found == series.end() ? std::nullopt : found->second.at(step);
}

MetricSeries downsample(MetricSeries const& series, std::size_t buckets) {
  std::size_t const size = series.steps.size();
  if (size <= 2 * buckets + 2) {
    return series;
  }
  MetricSeries kept{.steps = {}, .values = {}, .not_finite = series.not_finite};
  auto const keep = [&](std::size_t index) {
    kept.steps.push_back(series.steps[index]);
    kept.values.push_back(series.values[index]);
  };
  double const first = series.steps.front();
  double const width = (series.steps.back() - first) / static_cast<double>(buckets);
  keep(0);
  std::size_t start = 1;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    double const end_step = first + width * static_cast<double>(bucket + 1);
    std::size_t min = start;
    std::size_t max = start;
    std::size_t end = start;
    for (; end + 1 < size && (series.steps[end] <= end_step || bucket + 1 == buckets); ++end) {
      min = series.values[end] < series.values[min] ? end : min;
      max = series.values[end] > series.values[max] ? end : max;
    }
    if (end > start) {
      keep(std::min(min, max));
      if (min != max) {
        keep(std::max(min, max));
      }
    }
    start = end;
  }
  keep(size - 1);
  return kept;
}

RunMetrics read_metrics(std::filesystem::path const& path) {
  std::error_code problem;
  if (!std::filesystem::is_regular_file(path, problem)) {
    throw DataError("{}: is not a regular file; expected the metrics.jsonl of a run", path.string());
  }
  std::ifstream file(path);
  RunMetrics metrics;
  for (std::string line; std::getline(file, line);) {
    auto const object = parse_metrics_line(line);
    auto const* const step = object ? object->if_contains("step") : nullptr;
    if (step == nullptr || !step->is_number()) {
      ++metrics.unreadable;
      continue;
    }
    add(metrics, *object);
  }
  return metrics;
}

std::vector<std::string> describe_not_finite(RunMetrics const& metrics) {
  std::vector<std::string> texts;
  for (auto const& [key, series] : metrics.series) {
    if (!series.not_finite.empty()) {
      texts.push_back(describe(key, series));
    }
  }
  return texts;
}

boost::json::object to_json(RunMetrics const& metrics) {
  boost::json::object series;
  for (auto const& [key, each] : metrics.series) {
    MetricSeries const drawn = downsample(each, drawn_buckets);
    boost::json::array not_finite;
    for (auto const& [first, last] : each.not_finite) {
      not_finite.push_back(boost::json::array{first, last});
    }
    series[key] = {
        {"steps", numbers(drawn.steps)}, {"values", numbers(drawn.values)}, {"not_finite", std::move(not_finite)}};
  }
  return {{"series", std::move(series)},
          {"unreadable", metrics.unreadable},
          {"not_finite", boost::json::value_from(describe_not_finite(metrics))},
          {"samples", samples_to_json(metrics.samples, shown_samples)},
          {"expert_load", boost::json::value_from(metrics.expert_load)}};
}

std::string valid_dataset_of(boost::json::object const& line, std::string const& set) {
  return std::string(text_of(line, validation_key("dataset", set)));
}

std::map<std::int64_t, double> measured_values(std::filesystem::path const& metrics, Measure const& measure,
                                               std::optional<std::string> const& digest) {
  std::map<std::int64_t, std::pair<double, std::string>> found;
  std::istringstream file(read_regular(metrics).value_or(""));
  for (std::string line; std::getline(file, line);) {
    auto const object = parse_metrics_line(line);
    std::int64_t const step = step_of(object);
    auto const* const value = step < 0 ? nullptr : object->if_contains(measure.key());
    if (value != nullptr && value->is_number()) {
      found[step] = {value->to_number<double>(), valid_dataset_of(*object, measure.data())};
    }
  }
  std::map<std::int64_t, double> values;
  for (auto const& [step, each] : found) {
    if (each.second == digest.value_or(found.rbegin()->second.second)) {
      values[step] = each.first;
    }
  }
  return values;
}

}  // namespace heddle
