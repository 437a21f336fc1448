#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/base/enumerations.hpp>
#include <heddle/core/tasks/corpus_metric.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// The rule that splits sentences into words for BLEU; the names are sacreBLEU's.
enum class BleuTokenization : std::uint8_t {
  mteval_13a,     ///< sacreBLEU's default, for ordinary text
  zh,             ///< each Chinese character is a word; others as 13a
  characters,     ///< each character is a word: for Japanese and other languages that are written without spaces
  international,  ///< punctuation and symbols of Unicode stand alone (mteval-v14)
  none,           ///< at white space only, for text that is already tokenised
};
template <>
inline constexpr std::array<std::string_view, 5> value_names<BleuTokenization>{"13a", "zh", "char", "intl", "none"};

/// A measure of translations of a corpus, with sacreBLEU 2.x's rules and digits. It counts segment by segment; the
/// score is a function of the sums of the counts.
class TranslationMetric {
 public:
  virtual ~TranslationMetric() = default;

  /// "BLEU", "chrF2", "chrF2++", "TER".
  virtual std::string name() const = 0;
  /// The metric's part of sacreBLEU's signature: "case:mixed|eff:no|tok:13a|smooth:exp".
  virtual std::string signature() const = 0;
  /// The counts of a translation compared with one or more references. Throws DataError for text that is not UTF-8.
  virtual std::vector<double> count(std::string const& hypothesis, std::span<std::string const> references) const = 0;
  /// The score in per cent, from the sums of the segments' counts: 100 is perfect; for TER, which counts errors, 0 is.
  virtual double score(std::span<double const> sums) const = 0;
  /// The text that sacreBLEU prints after the score: " 61.0/35.8/22.3/14.0 (BP = 0.984 …)", or nothing.
  virtual std::string details(std::span<double const>) const { return ""; }
};

/// BLEU up to 4-grams with exponential smoothing (Papineni et al. 2002). With several references, n-grams match any of
/// them, and the length is that of the closest one.
std::unique_ptr<TranslationMetric> bleu_metric(BleuTokenization tokenization = BleuTokenization::mteval_13a);
/// chrF2 (Popović 2015): character n-grams up to order 6, beta 2, white space left out; with `word_order` 2 chrF2++.
/// The reference with the best score counts where there are several.
std::unique_ptr<TranslationMetric> chrf_metric(std::size_t word_order = 0);
/// Translation edit rate (Snover et al. 2006), as Tercom computes it: edits and shifts of lower-cased words for each
/// word of the reference. With several references, the fewest edits and the mean length count.
std::unique_ptr<TranslationMetric> ter_metric();

/// One of the metrics above with its defaults, by the name under which register_metrics has it. Throws Error for
/// another.
std::unique_ptr<TranslationMetric> translation_metric(std::string const& name);

/// Registers bleu, bleu_zh, bleu_char, chrf, chrf++ and ter, the metrics above with their defaults.
void register_metrics(MetricRegistry& registry);

/// A sentence as sacreBLEU's tokenizer writes it: words separated by single spaces. Throws DataError for text that is
/// not UTF-8.
std::string tokenize(BleuTokenization tokenization, std::string_view sentence);
/// Whether most letters of a text are Chinese or Japanese. Throws DataError for text that is not UTF-8.
bool is_written_without_spaces(std::string_view text);

/// A metric of a corpus whose text is not kept.
class CorpusScore {
 public:
  /// With `keep_counts` each segment's counts are kept, for resampling.
  explicit CorpusScore(std::unique_ptr<TranslationMetric> metric, bool keep_counts = false)
      : metric_(std::move(metric)), keep_counts_(keep_counts) {}

  /// Throws as TranslationMetric::count does.
  void add(std::string const& hypothesis, std::span<std::string const> references);

  TranslationMetric const& metric() const { return *metric_; }
  double score() const { return metric_->score(sums_); }
  std::string details() const { return metric_->details(sums_); }
  std::int64_t segments() const { return segments_; }
  /// The counts of a segment, in the order in which they were added, where they are kept.
  std::span<double const> counts(std::int64_t segment) const {
    return std::span(counts_).subspan(static_cast<std::size_t>(segment) * sums_.size(), sums_.size());
  }

 private:
  std::unique_ptr<TranslationMetric> metric_;
  bool keep_counts_;
  std::int64_t segments_ = 0;
  std::vector<double> sums_ = metric_->count("", std::vector<std::string>{""});  ///< of nothing: zeros
  std::vector<double> counts_;
};

}  // namespace heddle
