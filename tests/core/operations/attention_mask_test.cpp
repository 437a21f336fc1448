#include <heddle/core/operations/attention.hpp>

#include "test.hpp"

namespace heddle {
namespace {

TEST(AttentionMask, IsDescribedByItsReachDirectionAndGlobalTokens) {
  EXPECT_EQ(describe(AttentionMask::causal()), "causal");
  EXPECT_EQ(describe(AttentionMask::window(5, 0)), "window(5, 0)");
  EXPECT_EQ(describe(AttentionMask::window(5, 3, 2)), "window(5, 3) with 2 global");
  EXPECT_EQ(describe(AttentionMask::blocks(2, 4, 4, 1)), "blocks of 2(4, 4) with 1 global");
  EXPECT_EQ(describe(AttentionMask::blocks(64, 1, 0)), "blocks of 64(1, 0)");
}

TEST(AttentionMask, IsDescribedWithADirectionThatItsReachDoesNotImply) {
  AttentionMask window = AttentionMask::window(4, 4);
  window.hides_later = true;
  EXPECT_EQ(describe(window), "causal window(4, 4)");
  AttentionMask blocks = AttentionMask::blocks(8, 1, 0);
  blocks.hides_later = false;
  EXPECT_EQ(describe(blocks), "bidirectional blocks of 8(1, 0)");
}

}  // namespace
}  // namespace heddle
