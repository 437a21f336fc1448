#include "metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <heddle/core/base/error.hpp>

namespace heddle {
namespace {

constexpr std::size_t drawn_buckets = 500;

/// Adds the numbers of an object, each to the series `prefix` + its key.
void add_numbers(RunMetrics& metrics, double step, std::string const& prefix, boost::json::object const& object) {
  for (auto const& [key, value] : object) {
    if (key == "step" || !value.is_number()) {
      continue;
    }
    MetricSeries& series = metrics.series[prefix + std::string(key)];
    if (series.steps.empty() || series.steps.back() < step) {
      series.steps.push_back(step);
      series.values.push_back(value.to_number<double>());
    }
  }
}

void add(RunMetrics& metrics, boost::json::object const& line) {
  double const step = line.at("step").to_number<double>();
  add_numbers(metrics, step, "", line);
  if (auto const* const entropies = line.if_contains("attention_entropy"); entropies && entropies->is_object()) {
    add_numbers(metrics, step, "attention_entropy.", entropies->get_object());
  }
  auto const* const communication = line.if_contains("communication");
  if (communication == nullptr || !communication->is_object()) {
    return;
  }
  for (auto const& [name, traffic] : communication->get_object()) {
    auto const* const bytes = traffic.is_object() ? traffic.get_object().if_contains("bytes") : nullptr;
    if (bytes != nullptr && bytes->is_number()) {
      metrics.communicated_bytes[std::string(name)] += bytes->to_number<double>();
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

}  // namespace

std::optional<double> MetricSeries::at(std::int64_t step) const {
  auto const wanted = static_cast<double>(step);
  auto const found = std::ranges::lower_bound(steps, wanted);
  return found != steps.end() && *found == wanted
             ? std::optional(values[static_cast<std::size_t>(found - steps.begin())])
             : std::nullopt;
}

MetricSeries downsample(MetricSeries const& series, std::size_t buckets) {
  std::size_t const size = series.steps.size();
  if (size <= 2 * buckets + 2) {
    return series;
  }
  MetricSeries kept;
  auto const keep = [&](std::size_t index) {
    kept.steps.push_back(series.steps[index]);
    kept.values.push_back(series.values[index]);
  };
  double const first = series.steps.front();
  double const width = (series.steps.back() - first) / static_cast<double>(buckets);
  keep(0);
  std::size_t begin = 1;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    double const end_step = first + width * static_cast<double>(bucket + 1);
    std::size_t least = begin;
    std::size_t greatest = begin;
    std::size_t end = begin;
    for (; end + 1 < size && (series.steps[end] <= end_step || bucket + 1 == buckets); ++end) {
      least = series.values[end] < series.values[least] ? end : least;
      greatest = series.values[end] > series.values[greatest] ? end : greatest;
    }
    if (end > begin) {
      keep(std::min(least, greatest));
      if (least != greatest) {
        keep(std::max(least, greatest));
      }
    }
    begin = end;
  }
  keep(size - 1);
  return kept;
}

RunMetrics read_metrics(std::filesystem::path const& path) {
  std::error_code problem;
  if (!std::filesystem::is_regular_file(path, problem)) {
    throw DataError(fmt::format("{}: is no regular file; expected the metrics.jsonl of a run", path.string()));
  }
  std::ifstream file(path);
  RunMetrics metrics;
  for (std::string line; std::getline(file, line);) {
    boost::system::error_code error;
    boost::json::value const value = boost::json::parse(line, error);
    auto const* const step = !error && value.is_object() ? value.get_object().if_contains("step") : nullptr;
    if (step == nullptr || !step->is_number()) {
      ++metrics.unreadable;
      continue;
    }
    ++metrics.lines;
    add(metrics, value.get_object());
  }
  return metrics;
}

boost::json::object to_json(RunMetrics const& metrics) {
  boost::json::object series;
  for (auto const& [key, each] : metrics.series) {
    MetricSeries const drawn = downsample(each, drawn_buckets);
    series[key] = {{"steps", numbers(drawn.steps)}, {"values", numbers(drawn.values)}, {"points", each.steps.size()}};
  }
  boost::json::object communication;
  for (auto const& [name, bytes] : metrics.communicated_bytes) {
    communication[name] = bytes;
  }
  return {{"series", std::move(series)},
          {"lines", metrics.lines},
          {"unreadable", metrics.unreadable},
          {"communication", std::move(communication)}};
}

}  // namespace heddle
