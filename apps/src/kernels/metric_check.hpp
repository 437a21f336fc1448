#pragma once

#include <heddle/core/tasks/corpus_metric.hpp>
#include <string>
#include <vector>

namespace heddle {

/// A call of a metric on a small corpus.
struct MetricCheck {
  MetricRegistry::Entry metric;
  std::string problem;  ///< "with sources"
  double value = 0;
  std::string fault;  ///< "" if it passed
};

/// Calls metrics on a small corpus, with and without sources: those of a name or an origin, or all if it is empty.
/// Their value must be finite and the same twice.
std::vector<MetricCheck> check_metrics(MetricRegistry const& metrics, std::string const& name);

}  // namespace heddle
