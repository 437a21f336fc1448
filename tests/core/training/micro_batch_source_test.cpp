#include <heddle/core/training/micro_batch_source.hpp>

#include "test.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

TEST(RepeatedPack, CountsTheTokensOfAllItsMicroBatches) {
  std::vector<Sample> const pairs{{0, {4, 5}, {6, 7, 8}}};  // with end tokens 3 and 4
  RepeatedPack const batch(make_pack(pairs, test_ids), 3);
  EXPECT_EQ(batch.count(), 3);
  EXPECT_EQ(batch.tokens().target, 12);
  EXPECT_EQ(batch.tokens().all, 21);
  EXPECT_EQ(batch.micro_batch(2).source_rows.tokens, 3);
}

TEST(RepeatedPack, PredictsTheTokensOfAnOnlyStack) {
  RepeatedPack const batch(make_sequence_pack(std::vector<TokenSequence>{{0, {4, 5}, {4, 5}, 0}}, Side::source));
  EXPECT_EQ(batch.tokens().target, 2);
  EXPECT_EQ(batch.tokens().all, 2);
}

}  // namespace
}  // namespace heddle
