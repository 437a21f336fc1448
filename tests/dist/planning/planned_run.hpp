#pragma once

#include "golden_model.hpp"
#include "layouts.hpp"
#include "test_ids.hpp"
#include "test_micro_batches.hpp"

namespace heddle {

// A run of a small model with ragged micro-batches, which the tests plan and measure.

inline constexpr VocabularySizes vocabulary{501, 403, false};
inline constexpr std::int64_t micro_batches = 6;  // of each data rank
inline constexpr std::int64_t micro_batch_tokens = 400;

inline Config planned_config(Layout layout) {
  layout.micro_batch_tokens = micro_batch_tokens;
  Config config = tiny_config(layout);
  config.model.d_model = 64;
  config.model.d_ff = 128;
  config.model.max_length = 64;
  config.train.validate_every = 0;
  config.train.batch_tokens = micro_batches * micro_batch_tokens * layout.size(MeshAxis::data);
  return config;
}

/// Pairs of different lengths that fill a micro-batch as `cut_by_tokens` does, with about equal sides.
inline Pack ragged_pack(std::int64_t index, ContextSplit const& split = {}) {
  std::vector<Sample> pairs;
  std::int64_t used = 0;
  for (auto sample = static_cast<std::int32_t>(100 * index);; ++sample) {
    std::int64_t const length = 4 + sample * 7 % 31;
    used += length;
    if (used > micro_batch_tokens) {
      return make_pack(pairs, test_ids, split);
    }
    pairs.push_back({sample, std::vector<std::int32_t>(static_cast<std::size_t>(length - 1), 5),
                     std::vector<std::int32_t>(static_cast<std::size_t>(length - 1 - sample % 2), 7)});
  }
}

}  // namespace heddle
