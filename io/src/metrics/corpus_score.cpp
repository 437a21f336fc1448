#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/io/metrics/metric.hpp>

namespace heddle {

namespace {

/// Makes a metric with its defaults.
struct BuiltIn {
  char const* name;
  std::unique_ptr<TranslationMetric> (*make)();
  bool higher_is_better;
};

constexpr std::array built_in{BuiltIn{"bleu", [] { return bleu_metric(); }, true},
                              BuiltIn{"bleu_zh", [] { return bleu_metric(BleuTokenization::zh); }, true},
                              BuiltIn{"bleu_char", [] { return bleu_metric(BleuTokenization::characters); }, true},
                              BuiltIn{"chrf", [] { return chrf_metric(); }, true},
                              BuiltIn{"chrf++", [] { return chrf_metric(2); }, true},
                              BuiltIn{"ter", [] { return ter_metric(); }, false}};

}  // namespace

std::unique_ptr<TranslationMetric> translation_metric(std::string const& name) {
  auto const* const found = std::ranges::find(built_in, name, &BuiltIn::name);
  if (found == built_in.end()) {
    throw Error("there is no metric \"{}\" of translations", name);
  }
  return found->make();
}

void register_metrics(MetricRegistry& registry) {
  for (BuiltIn const& metric : built_in) {
    auto const score = [make = metric.make](TranslatedCorpus const& corpus) {
      CorpusScore sums(make());
      for (std::size_t line = 0; line < corpus.hypotheses.size(); ++line) {
        sums.add(corpus.hypotheses[line], corpus.references.subspan(line, 1));
      }
      return sums.score();
    };
    registry.add(metric.name, {score, metric.higher_is_better});
  }
}

void CorpusScore::add(std::string const& hypothesis, std::span<std::string const> references) {
  std::vector<double> const counts = metric_->count(hypothesis, references);
  std::ranges::transform(sums_, counts, sums_.begin(), std::plus());
  if (keep_counts_) {
    counts_.insert(counts_.end(), counts.begin(), counts.end());
  }
  ++segments_;
}

}  // namespace heddle
