#pragma once

#include <cstddef>
#include <cstdint>
#include <heddle/io/alignment/word_translation.hpp>
#include <span>
#include <vector>

namespace heddle {

/// Sorts by probability, the likeliest first, equal ones by target.
void sort_translations(std::vector<WordTranslation>& translations);

/// The words of sentence pairs, and for each source word the pairs that have it, once for each time. A last word, which
/// every pair has once, stands for no source.
class ModelOnePairs {
 public:
  explicit ModelOnePairs(std::int64_t source_words) : pairs_of_(static_cast<std::size_t>(source_words) + 1) {}
  void add(std::span<std::int32_t const> source, std::span<std::int32_t const> target);

  std::size_t source_words() const { return pairs_of_.size(); }
  std::vector<std::int32_t> const& pairs_of(std::size_t source) const { return pairs_of_[source]; }
  std::size_t begin(std::int32_t pair) const { return begins_[static_cast<std::size_t>(pair)]; }
  std::size_t end(std::int32_t pair) const { return begins_[static_cast<std::size_t>(pair) + 1]; }
  std::vector<std::int32_t> const& targets() const { return targets_; }

 private:
  std::vector<std::vector<std::int32_t>> pairs_of_;
  std::vector<std::int32_t> targets_;
  std::vector<std::size_t> begins_{0};
};

/// IBM model 1 (Brown et al. 1993), computed source word by source word: the probabilities of one word are spread over
/// the target vocabulary while all pairs that have it are visited, so that no table of two dimensions is searched.
class ModelOne {
 public:
  using Entries = std::vector<WordTranslation>;

  /// Keeps a reference to the pairs, and the `kept` likeliest translations of each source word.
  ModelOne(ModelOnePairs const& pairs, std::int64_t target_words, std::int64_t kept);
  /// A step of expectation maximisation.
  void iterate();
  /// The translations of a source word, as sort_translations sorts them; of the last one all.
  Entries const& entries(std::size_t source) const { return table_[source]; }

 private:
  /// At first each target word is as likely as another one.
  float probability(std::size_t at) const {
    return first_ ? 1.F : spread_[static_cast<std::size_t>(pairs_.targets()[at])];
  }
  void spread(std::size_t source);
  void clear(std::size_t source);
  void maximise(std::size_t source);

  ModelOnePairs const& pairs_;
  std::size_t kept_;
  bool first_ = true;
  std::vector<Entries> table_;
  std::vector<float> spread_;   ///< the probabilities of one source word
  std::vector<double> counts_;  ///< of one source word
  std::vector<float> sums_;     ///< of each target word, over the words that may have generated it
};

}  // namespace heddle
