#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <heddle/io/metrics/metric.hpp>
#include <heddle/io/text/text.hpp>
#include <unordered_map>
#include <vector>

namespace heddle {
namespace {

constexpr std::size_t max_order = 4;

using Counts = std::unordered_map<std::string_view, int64_t>;

/// Counts the n-grams of one order. `sentence` has single spaces, so an n-gram is a substring of it.
Counts count_ngrams(std::vector<std::string_view> const& words, std::size_t order) {
  Counts counts;
  for (std::size_t i = 0; i + order <= words.size(); ++i) {
    std::string_view const last = words[i + order - 1];
    auto const length = static_cast<std::size_t>(last.data() + last.size() - words[i].data());
    ++counts[std::string_view(words[i].data(), length)];
  }
  return counts;
}

/// Counts: words of the hypothesis, words of the reference, matches by order, n-grams of the hypothesis by order.
class Bleu final : public TranslationMetric {
 public:
  explicit Bleu(BleuTokenization tokenization) : tokenization_(tokenization) {}

  std::string name() const override { return "BLEU"; }
  std::string signature() const override {
    return fmt::format("case:mixed|eff:no|tok:{}|smooth:exp", name_of(tokenization_));
  }
  std::vector<double> count(std::string const& hypothesis, std::span<std::string const> references) const override;
  double score(std::span<double const> sums) const override;
  std::string details(std::span<double const> sums) const override;

 private:
  static constexpr std::size_t matches = 2, totals = matches + max_order;

  static double brevity_penalty(std::span<double const> sums) {
    return sums[0] >= sums[1] ? 1.0 : sums[0] > 0 ? std::exp(1.0 - sums[1] / sums[0]) : 0.0;
  }
  /// Per cent, by order, after smoothing.
  static std::array<double, max_order> precisions(std::span<double const> sums);

  BleuTokenization tokenization_;
};

std::vector<double> Bleu::count(std::string const& hypothesis, std::span<std::string const> references) const {
  std::string const text = tokenize(tokenization_, hypothesis);
  std::vector<std::string_view> const words = split_words(text);
  auto const length = static_cast<double>(words.size());
  std::vector<double> counts(totals + max_order);
  counts[0] = length;
  std::vector<std::string> texts;
  std::ranges::transform(references, std::back_inserter(texts),
                         [&](std::string const& each) { return tokenize(tokenization_, each); });
  std::array<Counts, max_order> expected;
  for (std::size_t index = 0; index < texts.size(); ++index) {
    std::vector<std::string_view> const reference = split_words(texts[index]);
    auto const other = static_cast<double>(reference.size());
    if (auto const key = [&](double of) { return std::pair(std::abs(of - length), of); };
        index == 0 || key(other) < key(counts[1])) {
      counts[1] = other;
    }
    for (std::size_t n = 0; n < max_order; ++n) {
      for (auto const& [ngram, number] : count_ngrams(reference, n + 1)) {
        expected[n][ngram] = std::max(expected[n][ngram], number);
      }
    }
  }
  for (std::size_t n = 0; n < max_order; ++n) {
    for (auto const& [ngram, number] : count_ngrams(words, n + 1)) {
      counts[totals + n] += static_cast<double>(number);
      auto const found = expected[n].find(ngram);
      counts[matches + n] += found == expected[n].end() ? 0 : static_cast<double>(std::min(number, found->second));
    }
  }
  return counts;
}

std::array<double, max_order> Bleu::precisions(std::span<double const> sums) {
  std::array<double, max_order> found{};
  auto const by_order = sums.subspan(matches, max_order);
  if (std::ranges::all_of(by_order, [](double count) { return count == 0; })) {
    return found;
  }
  double smoothing = 1.0;
  for (std::size_t n = 0; n < max_order && sums[totals + n] > 0; ++n) {
    if (by_order[n] == 0) {
      smoothing *= 2.0;
      found[n] = 100.0 / (smoothing * sums[totals + n]);
    } else {
      found[n] = 100.0 * by_order[n] / sums[totals + n];
    }
  }
  return found;
}

double Bleu::score(std::span<double const> sums) const {
  std::array<double, max_order> const found = precisions(sums);
  if (std::ranges::all_of(found, [](double precision) { return precision == 0; })) {
    return 0;
  }
  double log_sum = 0.0;
  for (double const precision : found) {
    log_sum += precision > 0.0 ? std::log(precision) : -9999999999.0;
  }
  return brevity_penalty(sums) * std::exp(log_sum / static_cast<double>(max_order));
}

std::string Bleu::details(std::span<double const> sums) const {
  return fmt::format(" {:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {:.0f} ref_len = {:.0f})",
                     fmt::join(precisions(sums), "/"), brevity_penalty(sums), sums[1] > 0 ? sums[0] / sums[1] : 0.0,
                     sums[0], sums[1]);
}

}  // namespace

std::unique_ptr<TranslationMetric> bleu_metric(BleuTokenization tokenization) {
  return std::make_unique<Bleu>(tokenization);
}

}  // namespace heddle
