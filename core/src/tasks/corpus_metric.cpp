#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/tasks/corpus_metric.hpp>
#include <iterator>
#include <string_view>

namespace heddle {

namespace {

/// Whether the name can be a part of a key in metrics.jsonl ("valid_NAME") and is not one that validation has.
bool is_usable(std::string const& name) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+";
  return !name.empty() && name.find_first_not_of(letters) == std::string::npos && name != "loss" &&
         name != "perplexity" && name != "accuracy" && name != "dataset" && name != "samples";
}

}  // namespace

void MetricRegistry::add(std::string name, CorpusMetric metric) {
  if (!is_usable(name) || !metric.score) {
    throw ConfigError("{} registers the metric '{}' without a {}", origin_, name,
                      is_usable(name) ? "function"
                                      : "usable name: expected letters, digits, \"_\" and \"+\", and "
                                        "not loss, perplexity, accuracy, dataset or samples");
  }
  if (Entry const* const entry = find(name)) {
    throw ConfigError("the metric name '{}' is taken by {}; each metric needs its own name", name, entry->origin);
  }
  entries_.push_back({std::move(name), origin_, std::move(metric)});
}

MetricRegistry::Entry const* MetricRegistry::find(std::string const& name) const {
  auto const found = std::ranges::find(entries_, name, &Entry::name);
  return found == entries_.end() ? nullptr : &*found;
}

MetricRegistry::Entry const& MetricRegistry::of(std::string const& name, std::string const& place) const {
  if (Entry const* const entry = find(name)) {
    return *entry;
  }
  std::vector<std::string> names;
  std::ranges::transform(entries_, std::back_inserter(names), &Entry::name);
  throw ConfigError("{}: there is no metric \"{}\"; {}", place, name,
                    nearest_or_all(name, names, "a metric of a plug-in"));
}

}  // namespace heddle
