#pragma once

#include <functional>
#include <heddle/core/base/named_registry.hpp>
#include <span>
#include <string>

namespace heddle {

/// The translations of a corpus: element i of each list belongs to line i.
struct TranslatedCorpus {
  std::span<std::string const> hypotheses;
  std::span<std::string const> references;
  std::span<std::string const> sources;  ///< empty where they are not known
};

/// A metric of translations: one number for a corpus, a pure function of its text.
struct CorpusMetric {
  std::function<double(TranslatedCorpus const&)> score;
  bool higher_is_better = true;
};

struct MetricEntry : NamedEntry {
  CorpusMetric metric;
};

/// Metrics by the names that train.validate_metrics may list.
class MetricRegistry : public NamedRegistry<MetricEntry> {
 public:
  /// Throws ConfigError if the name is taken, has other characters than letters, digits, "_" and "+", or is that of
  /// something else that validation reports, such as "loss"; and if there is no function.
  void add(std::string name, CorpusMetric metric);
  /// Throws ConfigError with `place`, the start of a message, if the name is not registered.
  Entry const& of(std::string const& name, std::string const& place) const;
};

}  // namespace heddle
