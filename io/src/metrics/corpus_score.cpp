#include <algorithm>
#include <functional>
#include <heddle/io/metrics/metric.hpp>

namespace heddle {

void CorpusScore::add(std::string const& hypothesis, std::span<std::string const> references) {
  std::vector<double> const counts = metric_->count(hypothesis, references);
  std::ranges::transform(sums_, counts, sums_.begin(), std::plus());
  if (keep_counts_) {
    counts_.insert(counts_.end(), counts.begin(), counts.end());
  }
  ++segments_;
}

}  // namespace heddle
