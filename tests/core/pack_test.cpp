#include <gmock/gmock.h>

#include <heddle/core/pack.hpp>

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::int32_t> host(Tensor const& tensor) {
  return to_host<std::int32_t>(tensor);
}

TEST(PackTest, HoldsEverySentenceWithoutPadding) {
  std::vector<SentencePair> const pairs{{4, {5, 6}, {7}}, {9, {}, {8, 5}}};
  Pack const pack = make_pack(pairs, 1, 2, 3);

  EXPECT_THAT(host(pack.source.id), ElementsAre(5, 6, 2, 2));
  EXPECT_THAT(host(pack.target_input.id), ElementsAre(1, 7, 1, 8, 5));
  EXPECT_THAT(host(pack.target_output.id), ElementsAre(7, 3, 8, 5, 3));

  TokenRows const& source = pack.rows(Side::source);
  EXPECT_EQ(source.tokens, 4);
  EXPECT_EQ(source.sequences.count, 2);
  EXPECT_EQ(source.sequences.max_length, 3);
  EXPECT_THAT(host(source.sequences.begin), ElementsAre(0, 3));
  EXPECT_THAT(host(source.sequences.length), ElementsAre(3, 1));
  EXPECT_THAT(host(source.sample), ElementsAre(4, 4, 4, 9));
  EXPECT_THAT(host(source.position), ElementsAre(0, 1, 2, 0));

  TokenRows const& target = pack.rows(Side::target);
  EXPECT_EQ(target.tokens, 5);
  EXPECT_EQ(target.sequences.max_length, 3);
  EXPECT_THAT(host(target.sequences.begin), ElementsAre(0, 2));
  EXPECT_THAT(host(target.sequences.length), ElementsAre(2, 3));
  EXPECT_THAT(host(target.sample), ElementsAre(4, 4, 9, 9, 9));
  EXPECT_THAT(host(target.position), ElementsAre(0, 1, 0, 1, 2));
}

TEST(PackTest, RowsAreOrderedByIdAndThenByPlace) {
  std::vector<SentencePair> const pairs{{0, {6, 5, 6}, {4, 4}}, {1, {5}, {9, 4}}};
  Pack const pack = make_pack(pairs, 1, 2, 2);
  // source ids: 6 5 6 2 5 2; target input: 1 4 4 1 9 4
  EXPECT_THAT(host(pack.source.row_order), ElementsAre(3, 5, 1, 4, 0, 2));
  EXPECT_THAT(host(pack.target_input.row_order), ElementsAre(0, 3, 1, 2, 5, 4));
}

TEST(PackTest, ASourceSideAloneIsEnoughToTranslate) {
  std::vector<std::vector<std::int32_t>> const sentences{{5, 6}, {}, {7}};
  Pack const pack = make_source_pack(sentences, 2);
  EXPECT_THAT(host(pack.source.id), ElementsAre(5, 6, 2, 2, 7, 2));
  EXPECT_THAT(host(pack.source_rows.sequences.length), ElementsAre(3, 1, 2));
  EXPECT_THAT(host(pack.source_rows.sample), ElementsAre(0, 0, 0, 1, 2, 2));
  EXPECT_EQ(pack.target_rows.tokens, 0);
}

TEST(PackTest, NoSentencesMakeAnEmptyPack) {
  Pack const pack = make_pack({}, 1, 2, 2);
  EXPECT_EQ(pack.source_rows.tokens, 0);
  EXPECT_EQ(pack.target_rows.sequences.count, 0);
  EXPECT_THAT(host(pack.source.id), IsEmpty());
}

}  // namespace
}  // namespace heddle
