#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle {

/// The rule that splits sentences into words before n-grams are counted; the names are sacreBLEU's.
enum class BleuTokenization {
  mteval_13a,  ///< sacreBLEU's default, for ordinary text
  none,        ///< at white space only, for text that is already tokenised
};

/// Corpus BLEU and its components, computed and printed as by sacreBLEU 2.x (exponential smoothing).
struct BleuScore {
  double score = 0.0;                  ///< 0 to 100
  std::array<double, 4> precisions{};  ///< per cent, after smoothing
  std::array<int64_t, 4> matches{};
  std::array<int64_t, 4> totals{};
  double brevity_penalty = 1.0;
  int64_t hypothesis_length = 0;  ///< words
  int64_t reference_length = 0;

  /// The score in sacreBLEU's form: "BLEU = 28.58 61.0/35.8/22.3/14.0 (BP = 0.984 ratio = 0.984 hyp_len = 11893
  /// ref_len = 12080)"
  std::string text() const;
};

/// BLEU of a corpus that is not kept: counts sentence by sentence.
class BleuCounter {
 public:
  explicit BleuCounter(BleuTokenization tokenization = BleuTokenization::mteval_13a) : tokenization_(tokenization) {}

  void add(std::string const& hypothesis, std::string const& reference);
  BleuScore score() const;

 private:
  BleuTokenization tokenization_;
  BleuScore counts_;  ///< matches, totals and lengths
};

/// A sentence as sacreBLEU's tokenizer 13a writes it: words separated by single spaces.
std::string tokenize_13a(std::string_view sentence);

}  // namespace heddle
