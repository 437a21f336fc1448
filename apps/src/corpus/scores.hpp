#pragma once

#include <cstddef>
#include <heddle/io/metrics/metric.hpp>
#include <heddle/io/text/text.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// How translations are judged.
struct ScoreOptions {
  std::vector<std::string> metrics{"bleu", "chrf"};  ///< registered ones
  std::string tokenize = "13a";
  bool confidence = false;
  std::string baseline;  ///< another system's translations; "": none
};

/// Scores of a system's translations, and of another one's that it is compared with.
class Scores {
 public:
  /// `references` is their number for each line, `registry` has the metrics of plug-ins. Throws DataError if the
  /// baseline cannot be read, ConfigError for a metric that is not registered, UsageError for a plug-in's with several
  /// references.
  Scores(ScoreOptions const& options, std::size_t references, MetricRegistry const& registry);

  /// Adds the next line, and reads the baseline's. Throws DataError if that has no more lines.
  void add(std::string const& hypothesis, std::span<std::string const> references, std::string const& source = "");
  /// Prints a line for each metric, in sacreBLEU's form. Throws DataError if the baseline has more lines.
  void print();

 private:
  /// The text that metrics of plug-ins judge, which is kept for them only.
  struct Text {
    std::vector<std::string> hypotheses, baseline, references, sources;
  };

  std::string line_of(CorpusScore const& corpus, bool confidence, std::string const& end) const;
  std::string line_of(MetricRegistry::Entry const& metric, std::vector<std::string> const& hypotheses,
                      std::string const& end) const;

  bool confidence_;
  bool compared_;
  std::size_t references_;
  std::vector<CorpusScore> systems_, baselines_;  ///< by metric
  std::vector<MetricRegistry::Entry> of_plugins_;
  Text text_;
  std::optional<LineReader> baseline_;
};

}  // namespace heddle
