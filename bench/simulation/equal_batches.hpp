#pragma once

#include <heddle/core/parameters/parameter.hpp>
#include <heddle/dist/planning/memory_plan.hpp>

namespace heddle {

/// Global batches of sentence pairs of one length, without data: both sides of every micro-batch are full.
class EqualBatches final : public BatchSamples {
 public:
  /// `batch_tokens` of either side; `sentence_tokens` with the end token.
  EqualBatches(std::int64_t batch_tokens, std::int64_t sentence_tokens)
      : batch_tokens_(batch_tokens), sentence_tokens_(sentence_tokens) {}

  int batches() const override { return 1; }
  /// The packs are shared by all ranks of a process. Throws ConfigError where the data ranks' micro-batches would not
  /// be equal.
  std::unique_ptr<MicroBatchSource> cut(int batch, MicroBatchCut const& cut) const override;

 private:
  std::int64_t batch_tokens_;
  std::int64_t sentence_tokens_;
};

}  // namespace heddle
