#pragma once

#include <heddle/core/training/micro_batch_source.hpp>
#include <vector>

namespace heddle {

struct SyntheticText {
  std::int64_t vocabulary = 10000;  ///< pieces, at least 4
  std::int64_t tokens = 1650;       ///< tokens of a micro-batch: the sum of its pairs' longer sides, ends included
  std::int64_t micro_batches = 8;
  std::int64_t shortest = 10;  ///< tokens of a sentence, end included; lengths are uniform ...
  std::int64_t longest = 50;   ///< ... up to this
};

/// A global batch of random sentences, for measurements without data: the same on every rank and in every run. A
/// micro-batch has at least one pair.
class SyntheticBatch {
 public:
  /// Sentences have ids above these.
  static constexpr SideIds special_ids{.source = {.end = 2}, .target = {.begin = 1, .end = 2}};

  explicit SyntheticBatch(SyntheticText const& text);

  std::int64_t micro_batches() const { return static_cast<std::int64_t>(micro_batches_.size()); }
  BatchTokens tokens() const { return tokens_; }
  std::vector<Sample> const& pairs(std::int64_t index) const { return micro_batches_[static_cast<std::size_t>(index)]; }
  Pack pack(std::int64_t index, ContextSplit const& split = {}) const {
    return make_pack(pairs(index), special_ids, split);
  }

 private:
  std::vector<std::vector<Sample>> micro_batches_;
  BatchTokens tokens_;
};

}  // namespace heddle
