#include "alignment/model_one.hpp"

#include <algorithm>
#include <utility>

namespace heddle {

void sort_translations(std::vector<WordTranslation>& translations) {
  std::ranges::sort(translations, [](WordTranslation const& a, WordTranslation const& b) {
    return std::pair(-a.probability, a.target) < std::pair(-b.probability, b.target);
  });
}

void ModelOnePairs::add(std::span<std::int32_t const> source, std::span<std::int32_t const> target) {
  auto const pair = static_cast<std::int32_t>(begins_.size() - 1);
  for (std::int32_t const word : source) {
    pairs_of_[static_cast<std::size_t>(word)].push_back(pair);
  }
  pairs_of_.back().push_back(pair);
  targets_.insert(targets_.end(), target.begin(), target.end());
  begins_.push_back(targets_.size());
}

ModelOne::ModelOne(ModelOnePairs const& pairs, std::int64_t target_words, std::int64_t kept)
    : pairs_(pairs),
      kept_(static_cast<std::size_t>(kept)),
      table_(pairs.source_words()),
      spread_(static_cast<std::size_t>(target_words)),
      counts_(static_cast<std::size_t>(target_words)),
      sums_(pairs.targets().size()) {}

void ModelOne::iterate() {
  std::ranges::fill(sums_, 0.F);
  for (std::size_t source = 0; source < table_.size(); ++source) {
    spread(source);
    for (std::int32_t const pair : pairs_.pairs_of(source)) {
      for (std::size_t at = pairs_.begin(pair); at < pairs_.end(pair); ++at) {
        sums_[at] += probability(at);
      }
    }
    clear(source);
  }
  for (std::size_t source = 0; source < table_.size(); ++source) {
    maximise(source);
  }
  first_ = false;
}

void ModelOne::spread(std::size_t source) {
  for (auto const& [target, probability] : table_[source]) {
    spread_[static_cast<std::size_t>(target)] = static_cast<float>(probability);
  }
}

void ModelOne::clear(std::size_t source) {
  for (auto const& entry : table_[source]) {
    spread_[static_cast<std::size_t>(entry.target)] = 0;
  }
}

void ModelOne::maximise(std::size_t source) {
  Entries entries;
  double total = 0;
  spread(source);
  for (std::int32_t const pair : pairs_.pairs_of(source)) {
    for (std::size_t at = pairs_.begin(pair); at < pairs_.end(pair); ++at) {
      float const part = probability(at);
      if (!(part > 0)) {
        continue;
      }
      std::int32_t const target = pairs_.targets()[at];
      double& count = counts_[static_cast<std::size_t>(target)];
      if (count == 0) {
        entries.push_back({target});
      }
      count += static_cast<double>(part / sums_[at]);
    }
  }
  clear(source);
  for (WordTranslation& entry : entries) {
    entry.probability = std::exchange(counts_[static_cast<std::size_t>(entry.target)], 0);
    total += entry.probability;
  }
  for (WordTranslation& entry : entries) {
    entry.probability /= total;
  }
  sort_translations(entries);
  // Every target word may come from no source, so that each has a sum above 0.
  if (source + 1 < table_.size()) {
    entries.resize(std::min(entries.size(), kept_));
    entries.shrink_to_fit();
  }
  table_[source] = std::move(entries);
}

}  // namespace heddle
