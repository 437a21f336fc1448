#include <algorithm>
#include <cstdint>
#include <heddle/io/metrics/metric.hpp>
#include <heddle/io/text/text.hpp>
#include <string_view>
#include <unordered_map>

namespace heddle {
namespace {

constexpr std::size_t character_order = 6;

/// A sentence as its characters and, where these are wanted, its words, with what separates words for n-grams of them.
struct Units {
  std::u32string characters;      ///< without white space
  std::u32string words;           ///< each with a space after it
  std::vector<std::size_t> ends;  ///< of the words, with that space
};

bool is_punctuation(char32_t letter) {
  return (letter >= U'!' && letter <= U'/') || (letter >= U':' && letter <= U'@') ||
         (letter >= U'[' && letter <= U'`') || (letter >= U'{' && letter <= U'~');
}

Units units_of(std::string const& sentence, bool with_words) {
  Units units;
  auto const add = [&](std::u32string_view word) {
    units.words.append(word).push_back(U' ');
    units.ends.push_back(units.words.size());
  };
  for (std::string_view const word : split_words(sentence)) {
    std::u32string const letters = decode_utf8(word);
    units.characters += letters;
    if (!with_words) {
      continue;
    }
    // Punctuation is split from one end of a word, from its last letter first, as chrF++.py does.
    std::u32string_view const all = letters;
    std::size_t const cut = all.size() == 1               ? 0
                            : is_punctuation(all.back())  ? all.size() - 1
                            : is_punctuation(all.front()) ? 1
                                                          : 0;
    if (cut > 0) {
      add(all.substr(0, cut));
    }
    add(all.substr(cut));
  }
  return units;
}

using NgramCounts = std::unordered_map<std::u32string_view, std::int64_t>;

NgramCounts ngrams_of(Units const& units, std::size_t order) {
  NgramCounts counts;
  if (order <= character_order) {
    std::u32string_view const characters = units.characters;
    for (std::size_t i = 0; i + order <= characters.size(); ++i) {
      ++counts[characters.substr(i, order)];
    }
    return counts;
  }
  order -= character_order;
  std::u32string_view const words = units.words;
  for (std::size_t i = 0; i + order <= units.ends.size(); ++i) {
    std::size_t const begin = i == 0 ? 0 : units.ends[i - 1];
    ++counts[words.substr(begin, units.ends[i + order - 1] - begin)];
  }
  return counts;
}

/// Counts, for each order: n-grams of the hypothesis, of the reference, in both.
class Chrf final : public TranslationMetric {
 public:
  explicit Chrf(std::size_t word_order) : word_order_(word_order) {}

  std::string name() const override { return "chrF2" + std::string(word_order_, '+'); }
  std::string signature() const override {
    return "case:mixed|eff:yes|nc:6|nw:" + std::to_string(word_order_) + "|space:no";
  }
  std::vector<double> count(std::string const& hypothesis, std::span<std::string const> references) const override;
  double score(std::span<double const> sums) const override;

 private:
  std::size_t word_order_;
};

std::vector<double> Chrf::count(std::string const& hypothesis, std::span<std::string const> references) const {
  std::size_t const orders = character_order + word_order_;
  Units const units = units_of(hypothesis, word_order_ > 0);
  std::vector<NgramCounts> all;
  for (std::size_t order = 1; order <= orders; ++order) {
    all.push_back(ngrams_of(units, order));
  }
  std::vector<double> best;
  double best_score = -1;
  for (std::string const& reference : references) {
    Units const expected = units_of(reference, word_order_ > 0);
    std::vector<double> counts(3 * orders);
    for (std::size_t n = 0; n < orders; ++n) {
      NgramCounts const others = ngrams_of(expected, n + 1);
      for (auto const& [ngram, number] : all[n]) {
        auto const found = others.find(ngram);
        counts[3 * n + 2] += found == others.end() ? 0 : static_cast<double>(std::min(number, found->second));
        // An order for which the reference is too short does not count, as in sacreBLEU.
        counts[3 * n] += others.empty() ? 0 : static_cast<double>(number);
      }
      for (auto const& [ngram, number] : others) {
        counts[3 * n + 1] += static_cast<double>(number);
      }
    }
    if (double const own = score(counts); own > best_score) {
      best_score = own;
      best = std::move(counts);
    }
  }
  return best;
}

double Chrf::score(std::span<double const> sums) const {
  double precision = 0.0;
  double recall = 0.0;
  std::int64_t orders = 0;
  for (std::size_t at = 0; at < sums.size(); at += 3) {
    if (sums[at] > 0 && sums[at + 1] > 0) {
      precision += sums[at + 2] / sums[at];
      recall += sums[at + 2] / sums[at + 1];
      ++orders;
    }
  }
  if (orders == 0 || precision + recall == 0.0) {
    return 0.0;
  }
  precision /= static_cast<double>(orders);
  recall /= static_cast<double>(orders);
  constexpr double beta_squared = 4.0;
  return 100.0 * ((1.0 + beta_squared) * precision * recall / (beta_squared * precision + recall));
}

}  // namespace

std::unique_ptr<TranslationMetric> chrf_metric(std::size_t word_order) {
  return std::make_unique<Chrf>(word_order);
}

}  // namespace heddle
