#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <heddle/io/metrics/metric.hpp>
#include <heddle/io/metrics/significance.hpp>
#include <heddle/io/text/text.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// How translations are judged.
struct ScoreOptions {
  std::vector<std::string> metrics{"bleu", "chrf"};  ///< registered ones
  std::string tokenize = "13a";                      ///< a name of BleuTokenization
  bool confidence = false;
  std::string baseline;  ///< another system's translations; "": none
};

/// A metric's score of translations, and what sacreBLEU prints beside it.
struct ScoreResult {
  std::string name;       ///< "BLEU"
  std::string signature;  ///< "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:heddle-0.4.0"
  double score = 0;
  std::optional<Confidence> confidence = {};
  std::string details = {};  ///< TranslationMetric::details
  bool of_baseline = false;
  std::optional<double> p_value = {};  ///< of the difference from the baseline's score
};

/// A line in sacreBLEU's form: "BLEU|nrefs:1|… = 25.06 55.6/31.0/19.3/11.8 (BP = …)".
std::string describe(ScoreResult const& result);
/// The same as an object, with the names of sacreBLEU's own JSON and the score unrounded.
boost::json::object to_json(ScoreResult const& result);

/// Scores of a system's translations, and of another one's that it is compared with.
class Scores {
 public:
  /// `references` is their number for each line, `registry` has the metrics of plug-ins. Throws DataError if the
  /// baseline cannot be read, UsageError for a metric or a tokenizer that is not there and for a plug-in's metric
  /// with several references.
  Scores(ScoreOptions const& options, std::size_t references, MetricRegistry const& registry);

  /// Adds the next line, and reads the baseline's. Throws DataError if that has no more lines.
  void add(std::string const& hypothesis, std::span<std::string const> references, std::string const& source = "");
  /// A result for each metric, after that of the baseline. Throws DataError if the baseline has more lines.
  std::vector<ScoreResult> results();
  /// A message where another tokenizer would be right for the references; else "".
  std::string advice() const;

 private:
  /// The text that metrics of plug-ins judge, which is kept for them only.
  struct Text {
    std::vector<std::string> hypotheses, baseline, references, sources;
  };

  ScoreResult result_of(CorpusScore const& corpus) const;
  ScoreResult result_of(MetricRegistry::Entry const& metric, std::vector<std::string> const& hypotheses) const;

  bool confidence_;
  bool compared_;
  bool counts_words_;  ///< in BLEU
  std::int64_t lines_ = 0;
  std::int64_t lines_without_spaces_ = 0;
  std::size_t references_;
  std::vector<CorpusScore> systems_, baselines_;  ///< by metric
  std::vector<MetricRegistry::Entry> of_plugins_;
  Text text_;
  std::optional<LineReader> baseline_;
};

}  // namespace heddle
