#pragma once

#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/samples/batches.hpp>
#include <vector>

namespace heddle {

/// Reads the batches of a training run for a group of ranks that train on the same samples: rank 0 of the group plans
/// and reads, the others get the tokens from it. Keeps a reference to the planner, which only rank 0 uses. An error of
/// reading is thrown on every rank.
class BatchReader {
 public:
  BatchReader(BatchPlanner& planner, Communicator group);

  /// Moves the cursor; as BatchPlanner::seek. Collective over the group.
  void seek(MixtureCursor const& cursor);
  /// The micro-batches of the next batch, read whole, valid until the next call; `cut` differs between ranks at most in
  /// `context`. Their memory is used again. Collective over the group.
  MicroBatchSource const& next(MicroBatchCut const& cut);

 private:
  /// The start of a batch's message.
  struct Head {
    std::int64_t micro_batches = 0, message_size = 0;
    BatchTokens tokens;
  };
  class Batch final : public MicroBatchSource {
   public:
    std::int64_t count() const override { return head.micro_batches; }
    BatchTokens tokens() const override { return head.tokens; }
    Pack micro_batch(std::int64_t index) const override {
      return make_pack(content.at(static_cast<std::size_t>(index)), context, &memory);
    }

    Head head;
    std::vector<PackTokens> content;  ///< at least head.micro_batches
    GroupMember context;
    mutable PackMemory memory;
  };

  void read(MicroBatchCut const& cut);
  void share();

  BatchPlanner& planner_;
  Communicator group_;
  Batch batch_;
  std::vector<std::int32_t> message_;
};

}  // namespace heddle
