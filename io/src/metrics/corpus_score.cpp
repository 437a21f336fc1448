#include <algorithm>
#include <functional>
#include <heddle/io/metrics/metric.hpp>

namespace heddle {

namespace {

/// A metric of translations as a function of the whole corpus. `make` makes a TranslationMetric.
template <class Make>
CorpusMetric corpus_metric(Make make, bool higher_is_better) {
  auto const score = [make](TranslatedCorpus const& corpus) {
    CorpusScore sums(make());
    for (std::size_t line = 0; line < corpus.hypotheses.size(); ++line) {
      sums.add(corpus.hypotheses[line], corpus.references.subspan(line, 1));
    }
    return sums.score();
  };
  return {score, higher_is_better};
}

}  // namespace

void register_metrics(MetricRegistry& registry) {
  registry.add("bleu", corpus_metric([] { return bleu_metric(); }, true));
  registry.add("chrf", corpus_metric([] { return chrf_metric(); }, true));
  registry.add("chrf++", corpus_metric([] { return chrf_metric(2); }, true));
  registry.add("ter", corpus_metric([] { return ter_metric(); }, false));
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
