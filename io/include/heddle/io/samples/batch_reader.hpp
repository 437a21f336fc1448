#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/samples/batches.hpp>
#include <memory>
#include <vector>

namespace heddle {

class BackgroundThread;

/// Reads the batches of a training run for a group of ranks that train on the same samples: rank 0 of the group plans
/// and reads, the others get the tokens from it. Data that one rank alone can read, such as a stream, it reads for all
/// data ranks. An error of reading is thrown on every rank, by the call of `next` that was to return the batch.
class BatchReader {
 public:
  /// The place in the data after a batch.
  struct Progress {
    MixtureCursor cursor{};
    double epochs = 0;                    ///< BatchPlanner::epochs
    std::vector<double> corpus_epochs{};  ///< BatchPlanner::corpus_epochs
    /// The tokens that each corpus's rows in the batch are to predict.
    std::vector<std::int64_t> corpus_tokens{};
  };

  enum class Group : std::uint8_t {
    of_a_data_rank,  ///< `cut` differs between ranks at most in `context`
    of_all           ///< in `data`, too
  };

  BatchReader(BatchPlanner planner, MicroBatchCut const& cut, Communicator group, Group kind = Group::of_a_data_rank);
  /// Waits for a batch that is being read ahead.
  ~BatchReader();

  Mixture const& mixture() const { return planner_.mixture(); }
  /// The totals of the first epoch.
  SampleTotals const& totals() const { return planner_.totals(); }

  /// Moves the cursor; as BatchPlanner::seek. What was read ahead is dropped. Collective over the group.
  void seek(MixtureCursor const& cursor) { seek(cursor, false); }
  /// Starts the mixture's next stage after the batch that `next` has returned last. Collective over the group.
  void end_stage() { seek(MixtureCursor(progress().cursor), true); }
  /// The micro-batches of the next batch, read whole, valid until the next call. Their memory is used again. Collective
  /// over the group.
  MicroBatchSource const& next();
  /// Starts to read the batch that `next` returns then, on rank 0, in a thread that calls no MPI. Until then the
  /// samples are the thread's alone. Not collective.
  void read_ahead();
  /// Waits until `next` has its batch on rank 0; false where stop(), which rank 0 asks meanwhile, became true before.
  /// Collective over the group.
  bool await_next(std::function<bool()> const& stop);
  /// After the batch that `next` has returned last, or where `seek` went. On other ranks than 0 the start of the data.
  Progress const& progress() const { return batch_.content.progress; }
  /// The stage of the next batch: see StageCursor. The same on all ranks.
  std::int64_t stage() const { return batch_.content.head.stage; }
  /// Whether that batch was the last one: BatchPlanner::exhausted. The same on all ranks.
  bool exhausted() const { return batch_.content.head.exhausted; }

 private:
  /// The start of a batch's message.
  struct Head {
    std::int64_t micro_batches = 0, message_size = 0;
    BatchTokens tokens = {};
    std::int64_t stage = 0;
    bool exhausted = false;
  };
  /// A batch as it was read.
  struct Content {
    Head head;
    std::vector<PackFields> micro_batches;  ///< at least head.micro_batches; then, on rank 0, those of other data ranks
    std::vector<std::int64_t> counts;       ///< on rank 0: how many each data rank has
    std::vector<std::int32_t> corpora;      ///< of each sample; empty for one corpus
    Progress progress;
  };
  class Batch final : public MicroBatchSource {
   public:
    std::int64_t count() const override { return content.head.micro_batches; }
    BatchTokens tokens() const override { return content.head.tokens; }
    Pack micro_batch(std::int64_t index) const override {
      return make_pack(content.micro_batches.at(static_cast<std::size_t>(index)), context, &memory);
    }

    SampleGroups groups() const override { return {corpora > 1 ? corpora : 0, content.corpora}; }

    Content content;
    std::int64_t corpora = 0;  ///< of the mixture
    ContextSplit context;
    mutable PackMemory memory;
  };

  void seek(MixtureCursor const& cursor, bool next_stage);
  Progress planned() const;
  /// The start of the message of a batch that has not been read.
  Head place() const { return {.stage = planner_.cursor().stage.stage, .exhausted = planner_.exhausted()}; }
  /// Reads the next batch into ahead_.
  void read();
  void share();

  BatchPlanner planner_;
  MicroBatchCut cut_;
  Communicator group_;
  bool for_all_;
  Batch batch_;
  Content ahead_;
  std::vector<std::int32_t> message_;
  std::unique_ptr<BackgroundThread> thread_;  ///< the last member: it ends before those that it uses
};

}  // namespace heddle
