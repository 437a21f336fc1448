#pragma once

#include <algorithm>
#include <cstdint>
#include <heddle/core/pack.hpp>
#include <random>
#include <utility>
#include <vector>

namespace heddle {

struct MadeUpText {
  std::int64_t vocabulary = 10000;
  std::int64_t tokens = 1650;  ///< of a micro-batch: the sum of its pairs' longer sides, ends included
  std::int64_t micro_batches = 8;
  std::int64_t shortest = 10;  ///< tokens of a sentence, end included; lengths are uniform ...
  std::int64_t longest = 50;   ///< ... up to this
};

/// A global batch of random sentences: the same on every rank and in every run.
class MadeUpBatch {
 public:
  explicit MadeUpBatch(MadeUpText const& text) {
    std::mt19937 random(1);  // NOLINT: the same numbers in each run
    auto const sentence = [&](std::int64_t pieces) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(pieces));
      for (std::int32_t& id : ids) {
        id = static_cast<std::int32_t>(3 + random() % static_cast<std::uint64_t>(text.vocabulary - 3));
      }
      return ids;
    };
    std::uniform_int_distribution<std::int64_t> length(text.shortest, text.longest);
    std::int32_t sample = 0;
    for (std::int64_t index = 0; index < text.micro_batches; ++index) {
      std::vector<SentencePair> pairs;
      std::int64_t filled = 0;
      while (true) {
        std::int64_t const source = length(random);
        // A translation is about as long as its source.
        std::int64_t const target = std::clamp(source * (90 + length(random) % 21) / 100, text.shortest, text.longest);
        filled += std::max(source, target);
        if (filled > text.tokens) {
          break;
        }
        pairs.push_back({sample++, sentence(source - 1), sentence(target - 1)});
        target_tokens_ += target;
        tokens_ += source + target;
      }
      micro_batches_.push_back(std::move(pairs));
    }
  }

  std::int64_t micro_batches() const { return static_cast<std::int64_t>(micro_batches_.size()); }
  std::int64_t target_tokens() const { return target_tokens_; }
  /// Source and target, ends included.
  std::int64_t tokens() const { return tokens_; }
  Pack pack(std::int64_t index, ContextSplit const& split = {}) const {
    return make_pack(micro_batches_[static_cast<std::size_t>(index)], 1, 2, 2, split);
  }

 private:
  std::vector<std::vector<SentencePair>> micro_batches_;
  std::int64_t target_tokens_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace heddle
