#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

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

/// Metrics by the names that train.validate_metrics may list.
class MetricRegistry {
 public:
  struct Entry {
    std::string name;
    std::string origin;  ///< "built-in" or the plug-in's path
    CorpusMetric metric;
  };

  /// Throws ConfigError if the name is taken, has other characters than letters, digits, "_" and "+", or is that of
  /// something else that validation reports, such as "loss"; and if there is no function.
  void add(std::string name, CorpusMetric metric);
  /// Throws ConfigError with `place`, the start of a message, if the name is not registered.
  Entry const& of(std::string const& name, std::string const& place) const;
  /// Null if the name is not registered.
  Entry const* find(std::string const& name) const;

  std::vector<Entry> const& entries() const { return entries_; }
  /// Sets the origin of entries that are added from now on.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  std::vector<Entry> entries_;
  std::string origin_ = "built-in";
};

}  // namespace heddle
