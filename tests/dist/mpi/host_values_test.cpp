#include <heddle/core/parallel/host_values.hpp>

#include "dist_fixture.hpp"

namespace heddle {
namespace {

/// A struct of odd size and alignment, with values that no double holds.
struct Plain {
  std::int64_t large = 0;
  double real = 0;
  char letter = 0;

  bool operator==(Plain const&) const = default;
};

Plain plain_of(int rank) {
  return {.large = std::numeric_limits<std::int64_t>::max() - rank, .real = -0.1 * rank, .letter = 'a'};
}

/// Texts of 0, 3, 6, … bytes, not only ASCII.
std::string text_of(int rank) {
  std::string text;
  for (int index = 0; index < rank; ++index) {
    text += "→";
  }
  return text;
}

using HostValuesTest = DistTest;

TEST_F(HostValuesTest, ARanksValueReachesAll) {
  for (int root = 0; root < world_.size(); ++root) {
    EXPECT_EQ(broadcast_value(world_, plain_of(world_.rank()), root), plain_of(root));
    EXPECT_EQ(broadcast_value(world_, static_cast<char>('a' + world_.rank() % 20), root), 'a' + root % 20);
    EXPECT_EQ(broadcast_text(world_, text_of(world_.rank()), root), text_of(root));
  }
}

TEST_F(HostValuesTest, EveryRanksValueReachesAll) {
  std::vector<Plain> values;
  std::vector<std::string> texts;
  std::vector<std::vector<std::int16_t>> lists;
  for (int rank = 0; rank < world_.size(); ++rank) {
    values.push_back(plain_of(rank));
    texts.push_back(text_of(rank));
    lists.emplace_back(static_cast<std::size_t>(rank) % 3, static_cast<std::int16_t>(-rank));
  }
  auto const here = static_cast<std::size_t>(world_.rank());
  EXPECT_EQ(gather_values(world_, values[here]), values);
  EXPECT_EQ(gather_texts(world_, texts[here]), texts);
  EXPECT_EQ(gather_lists<std::int16_t>(world_, lists[here]), lists);
}

TEST_F(HostValuesTest, NothingIsGatheredAsNothing) {
  EXPECT_EQ(gather_texts(world_, ""), std::vector<std::string>(static_cast<std::size_t>(world_.size())));
  EXPECT_EQ(broadcast_text(world_, ""), "");
}

TEST_F(HostValuesTest, MaximumAnyAndSumsAreThoseOfAllRanks) {
  std::int64_t const large = std::numeric_limits<std::int64_t>::max() - world_.size();
  EXPECT_EQ(max_of(world_, large + world_.rank()), large + world_.size() - 1);
  EXPECT_EQ(max_of(world_, -1.5 - world_.rank()), -1.5);
  EXPECT_FALSE(any_of(world_, false));
  EXPECT_TRUE(any_of(world_, true));
  EXPECT_TRUE(any_of(world_, world_.rank() == world_.size() - 1));
  std::int64_t const ranks = world_.size();
  std::int64_t const large_odd = (std::int64_t{1} << 53) + 1;
  EXPECT_EQ(sums_of<std::int64_t>(world_, {world_.rank(), large_odd}),
            (std::vector<std::int64_t>{ranks * (ranks - 1) / 2, ranks * large_odd}));
}

}  // namespace
}  // namespace heddle
