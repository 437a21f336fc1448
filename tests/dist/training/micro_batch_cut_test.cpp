#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/dist/planning/dry_run.hpp>

#include "test.hpp"

namespace heddle {
namespace {

// Rank 11 of pipeline 2 × data 3 × context 2 × tensor 1: the last one.
ParallelState last_of_twelve() {
  return idle_parallel_state(Mesh({2, 3, 2, 1}, 11, 12), {});
}

TEST(MicroBatchCutTest, IsTheDataRanksShare) {
  TrainConfig train;
  train.micro_batch_tokens = 64;
  MicroBatchCut const cut = micro_batch_cut(train, last_of_twelve());
  EXPECT_EQ(cut.max_tokens, 64);
  EXPECT_EQ(cut.data.rank, 2);
  EXPECT_EQ(cut.data.ranks, 3);
  EXPECT_EQ(cut.context.decoder().rank, 1);
  EXPECT_EQ(cut.context.decoder().ranks, 2);
  EXPECT_TRUE(cut.equal);
  EXPECT_FALSE(micro_batch_cut(train, idle_parallel_state(Mesh({1, 3, 2, 1}, 5, 6), {})).equal);
}

TEST(MicroBatchCutTest, IsTheWholeBatchInDeterministicMode) {
  TrainConfig train;
  train.deterministic = true;
  MicroBatchCut const cut = micro_batch_cut(train, last_of_twelve());
  EXPECT_EQ(cut.data.ranks, 1);
  EXPECT_EQ(cut.context.decoder().ranks, 2);
  EXPECT_FALSE(cut.equal);
}

}  // namespace
}  // namespace heddle
