#include "inspection/model/masks.hpp"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(MaskWords, SayTheReachInTokensAndBlocks) {
  EXPECT_EQ(mask_words(AttentionMask::causal()), "causal");
  EXPECT_EQ(mask_words(AttentionMask::window(5, 0)), "window of 5 tokens before");
  EXPECT_EQ(mask_words(AttentionMask::window(1, 1)), "window of 1 token on each side");
  EXPECT_EQ(mask_words(AttentionMask::window(5, 3, 2)), "window of 5 tokens before and 3 after, 2 global tokens");
  EXPECT_EQ(mask_words(AttentionMask::blocks(2, 4, 4, 1)), "blocks of 2 tokens, 4 on each side, 1 global token");
  EXPECT_EQ(mask_words(AttentionMask::blocks(64, 1, 0)), "blocks of 64 tokens, 1 before");
}

TEST(MaskWords, SayWhichLaterTokensAreSeen) {
  AttentionMask window = AttentionMask::window(4, 4);
  window.hides_later = true;
  EXPECT_EQ(mask_words(window), "window of 4 tokens on each side, none later than the query");
  AttentionMask blocks = AttentionMask::blocks(8, 1, 0);
  blocks.hides_later = false;
  EXPECT_EQ(mask_words(blocks), "blocks of 8 tokens, 1 before, the whole of the query's block");
}

}  // namespace
}  // namespace heddle
