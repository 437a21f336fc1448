#pragma once

#include <cstdint>
#include <heddle/core/config/config.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <span>
#include <utility>

namespace heddle {

/// Real tokens of a global batch over all ranks, end tokens included.
struct BatchTokens {
  std::int64_t target = 0;  ///< tokens that rows of one pass are to predict: losses and gradients are means over them
  std::int64_t all = 0;     ///< source and target
};

/// A division of a global batch's samples into groups, whose losses are summed, too.
struct SampleGroups {
  std::int64_t count = 0;  ///< the same on every rank; 0: they are not divided
  /// The group of each sample, by its number, where there are micro-batches; a second pass continues the numbers.
  std::span<std::int32_t const> of_sample = {};
};

/// The micro-batches of one global batch that one rank computes: a pure function of seed, epoch and step, so that a
/// micro-batch is the same each time it is read. Nothing here is collective.
class MicroBatchSource {
 public:
  virtual ~MicroBatchSource() = default;

  /// The number of micro-batches here: this data rank's or, for deterministic training and for evaluation, those of
  /// the whole batch, the same on every rank.
  virtual std::int64_t count() const = 0;
  virtual BatchTokens tokens() const = 0;
  /// Micro-batch `index` of [0, count()), this context rank's part of it.
  virtual Pack micro_batch(std::int64_t index) const = 0;
  virtual SampleGroups groups() const { return {}; }
};

/// The way in which a rank's micro-batches are cut from a global batch.
struct MicroBatchCut {
  std::int64_t max_tokens = 4096;  ///< maximum of a micro-batch; a longer sample is a micro-batch by itself
  GroupMember data{};              ///< whose contiguous share is taken; one rank: the whole batch
  bool equal = false;              ///< micro-batches of about equal tokens, which suit pipeline stages best
  ContextSplit context{};          ///< whose part of each micro-batch is given
  int passes = 1;                  ///< of each sample in its micro-batch, whose tokens then count as often
};

/// The place of a rank of the mesh among those that divide the tokens of each sequence.
ContextSplit context_split(Mesh const& mesh);

/// The cut by which a rank trains. In deterministic mode it takes the whole batch, of which the gradient tree then
/// selects this rank's share.
MicroBatchCut micro_batch_cut(TrainConfig const& train, ParallelState const& parallel);

/// One micro-batch, `count` times: for dry runs and measurements, and for a look at a model.
class RepeatedPack final : public MicroBatchSource {
 public:
  explicit RepeatedPack(Pack pack, std::int64_t count = 1) : pack_(std::move(pack)), count_(count) {}

  std::int64_t count() const override { return count_; }
  BatchTokens tokens() const override;
  Pack micro_batch(std::int64_t /*index*/) const override { return pack_; }

 private:
  Pack pack_;
  std::int64_t count_;
};

}  // namespace heddle
