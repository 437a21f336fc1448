#pragma once

#include <cstdint>
#include <heddle/core/tensor/pack.hpp>

namespace heddle {

/// Real tokens of a global batch over all ranks, end tokens included.
struct BatchTokens {
  std::int64_t target = 0;  ///< those that rows are to predict
  std::int64_t all = 0;     ///< source and target
  /// The sum of the weights of the rows that are to predict a token (RowTargets); 0: each has the weight 1.
  double weight = 0;

  /// Losses and gradients are divided by it.
  double loss_weight() const { return weight > 0 ? weight : static_cast<double>(target); }
};

/// The micro-batches of one global batch that one rank computes: a pure function of seed, epoch and step, so that a
/// micro-batch is the same each time it is read. Nothing here is collective.
class MicroBatchSource {
 public:
  MicroBatchSource() = default;
  virtual ~MicroBatchSource() = default;
  MicroBatchSource(MicroBatchSource const&) = delete;
  MicroBatchSource& operator=(MicroBatchSource const&) = delete;

  /// The number of micro-batches here: this data rank's or, for deterministic training and for evaluation, those of
  /// the whole batch, the same on every rank.
  virtual std::int64_t count() const = 0;
  virtual BatchTokens tokens() const = 0;
  /// Micro-batch `index` of [0, count()), this context rank's part of it.
  virtual Pack micro_batch(std::int64_t index) const = 0;
};

}  // namespace heddle
