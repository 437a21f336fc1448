#pragma once

#include <heddle/core/tensor/pack.hpp>
#include <vector>

namespace heddle {

struct SyntheticText {
  std::int64_t vocabulary = 10000;  ///< pieces, at least 4
  std::int64_t tokens = 1650;       ///< of a micro-batch: the sum of its pairs' longer sides, ends included
  std::int64_t micro_batches = 8;
  std::int64_t shortest = 10;  ///< tokens of a sentence, end included; lengths are uniform ...
  std::int64_t longest = 50;   ///< ... up to this
};

/// A global batch of random sentences, for where there is no data to measure with: the same on every rank and in every
/// run. A micro-batch has one pair at least.
class SyntheticBatch {
 public:
  explicit SyntheticBatch(SyntheticText const& text);

  std::int64_t micro_batches() const { return static_cast<std::int64_t>(micro_batches_.size()); }
  std::int64_t target_tokens() const { return target_tokens_; }
  /// Source and target, ends included.
  std::int64_t tokens() const { return tokens_; }
  Pack pack(std::int64_t index, GroupMember const& split = {}) const {
    return make_pack(micro_batches_[static_cast<std::size_t>(index)], 1, 2, 2, split);
  }

 private:
  std::vector<std::vector<SentencePair>> micro_batches_;
  std::int64_t target_tokens_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace heddle
