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
  std::vector<std::string> metrics{"bleu", "chrf"};
  std::string tokenize = "13a";
  bool confidence = false;
  std::string baseline;  ///< another system's translations; "": none
};

/// Scores of a system's translations, and of another one's that it is compared with.
class Scores {
 public:
  /// `references` is their number for each line. Throws DataError if the baseline cannot be read.
  Scores(ScoreOptions const& options, std::size_t references);

  /// Adds the next line, and reads the baseline's. Throws DataError if that has no more lines.
  void add(std::string const& hypothesis, std::span<std::string const> references);
  /// Prints a line for each metric, in sacreBLEU's form. Throws DataError if the baseline has more lines.
  void print();

 private:
  std::string line_of(CorpusScore const& corpus, bool confidence, std::string const& end) const;

  bool confidence_;
  bool compared_;
  std::size_t references_;
  std::vector<CorpusScore> systems_, baselines_;  ///< by metric
  std::optional<LineReader> baseline_;
};

}  // namespace heddle
