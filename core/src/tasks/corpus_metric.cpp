#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/tasks/corpus_metric.hpp>
#include <string_view>

namespace heddle {

namespace {

/// Whether the name can be a part of a key in metrics.jsonl ("valid_NAME") and is not one that validation has.
bool is_usable(std::string const& name) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+";
  return !name.empty() && name.find_first_not_of(letters) == std::string::npos && name != "loss" &&
         name != "perplexity" && name != "accuracy" && name != "dataset" && name != "samples" && name != "mean";
}

}  // namespace

void MetricRegistry::add(std::string name, CorpusMetric metric) {
  std::string_view const lack = !is_usable(name)
                                    ? "usable name: expected letters, digits, \"_\" and \"+\", and not loss, "
                                      "perplexity, accuracy, dataset, samples or mean"
                                : !metric.score ? "function"
                                                : "";
  insert("metric", lack, {{std::move(name)}, std::move(metric)});
}

MetricRegistry::Entry const& MetricRegistry::of(std::string const& name, std::string const& place) const {
  if (Entry const* const entry = find(name)) {
    return *entry;
  }
  throw ConfigError("{}: there is no metric \"{}\"; {}", place, name,
                    nearest_or_all(name, names(), "a metric of a plug-in"));
}

}  // namespace heddle
