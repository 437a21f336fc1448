#pragma once

#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/dataset/batches.hpp>
#include <vector>

namespace heddle {

/// Reads the batches of a training run for a group of ranks that train on the same samples: rank 0 of the group plans
/// and reads, the others get the tokens from it. Keeps references to the samples and the planner, which only rank 0
/// uses. An error of reading is thrown on every rank.
class BatchReader {
 public:
  BatchReader(SampleSource const& samples, BatchPlanner& planner, Communicator group);

  /// Moves the cursor; as BatchPlanner::seek. Collective over the group.
  void seek(std::int64_t epoch, std::int64_t position);
  /// The micro-batches of the next batch, read whole, valid until the next call; `cut` differs between ranks at most in
  /// `context`. Their memory is used again. Collective over the group.
  MicroBatchSource const& next(MicroBatchCut const& cut);
  /// The cursor behind the batch that `next` returned last, on every rank.
  std::int64_t epoch() const { return batch_.cursor.epoch; }
  std::int64_t position() const { return batch_.cursor.position; }

 private:
  /// Head of a batch's message.
  struct Cursor {
    std::int64_t epoch = 0, position = 0, micro_batches = 0, message_size = 0;
    BatchTokens tokens;
  };
  class Batch final : public MicroBatchSource {
   public:
    std::int64_t count() const override { return cursor.micro_batches; }
    BatchTokens tokens() const override { return cursor.tokens; }
    Pack micro_batch(std::int64_t index) const override {
      return make_pack(content.at(static_cast<std::size_t>(index)), context, &memory);
    }

    Cursor cursor;
    std::vector<PackTokens> content;  ///< at least cursor.micro_batches
    GroupMember context;
    mutable PackMemory memory;
  };

  void read(MicroBatchCut const& cut);
  void share();

  SampleSource const& samples_;
  BatchPlanner& planner_;
  Communicator group_;
  Batch batch_;
  std::vector<std::int32_t> message_;
};

}  // namespace heddle
