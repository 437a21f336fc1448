#include <algorithm>
#include <heddle/io/metrics/chrf.hpp>
#include <heddle/io/text/text.hpp>
#include <string_view>
#include <unordered_map>

namespace heddle {
namespace {

std::u32string without_spaces(std::string const& sentence) {
  std::u32string characters;
  for (std::string_view const word : split_words(sentence)) {
    characters += decode_utf8(word);
  }
  return characters;
}

using CharacterCounts = std::unordered_map<std::u32string_view, int64_t>;

CharacterCounts count_ngrams(std::u32string_view characters, std::size_t order) {
  CharacterCounts counts;
  for (std::size_t i = 0; i + order <= characters.size(); ++i) {
    ++counts[characters.substr(i, order)];
  }
  return counts;
}

}  // namespace

void ChrfCounter::add(std::string const& hypothesis, std::string const& reference) {
  std::u32string const hypothesis_characters = without_spaces(hypothesis);
  std::u32string const reference_characters = without_spaces(reference);
  for (std::size_t n = 0; n < totals_.size(); ++n) {
    CharacterCounts const expected = count_ngrams(reference_characters, n + 1);
    for (auto const& [ngram, count] : count_ngrams(hypothesis_characters, n + 1)) {
      auto const found = expected.find(ngram);
      totals_[n].matches += found == expected.end() ? 0 : std::min(count, found->second);
      // An order for which the reference is too short does not count, as in sacreBLEU.
      totals_[n].hypothesis += expected.empty() ? 0 : count;
    }
    for (auto const& [ngram, count] : expected) {
      totals_[n].reference += count;
    }
  }
}

double ChrfCounter::score() const {
  double precision = 0.0;
  double recall = 0.0;
  int64_t orders = 0;
  for (OrderCounts const& order : totals_) {
    if (order.hypothesis > 0 && order.reference > 0) {
      precision += static_cast<double>(order.matches) / static_cast<double>(order.hypothesis);
      recall += static_cast<double>(order.matches) / static_cast<double>(order.reference);
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

}  // namespace heddle
