#include "training/loss_watch.hpp"

#include <gmock/gmock.h>

namespace heddle {
namespace {

using testing::HasSubstr;

/// Adds `count` steps of this loss; returns the number of messages, and the last one.
std::pair<int, std::string> add(LossWatch& watch, std::int64_t& step, std::int64_t count, double loss) {
  std::pair<int, std::string> messages{0, ""};
  for (std::int64_t last = step + count; step < last;) {
    if (auto const message = watch.add(++step, loss)) {
      ++messages.first;
      messages.second = *message;
    }
  }
  return messages;
}

TEST(LossWatch, ReportsARiseThatLastsOnceAndRemembersTheBestStep) {
  LossWatch watch;
  std::int64_t step = 0;
  EXPECT_EQ(add(watch, step, 50, 9).first, 0);
  EXPECT_EQ(add(watch, step, 50, 3).first, 0);
  EXPECT_FALSE(watch.risen_since());
  auto const [messages, message] = add(watch, step, 200, 8);
  EXPECT_EQ(messages, 1);
  EXPECT_THAT(message, HasSubstr("its best, 3.0000 at step "));
  ASSERT_TRUE(watch.risen_since());
  EXPECT_GT(*watch.risen_since(), 50);
  EXPECT_LE(*watch.risen_since(), 100);
  EXPECT_EQ(add(watch, step, 60, 3).first, 0);
  EXPECT_FALSE(watch.risen_since());
  EXPECT_EQ(add(watch, step, 60, 8).first, 1) << "a second rise is reported, too";
}

TEST(LossWatch, JudgesAsIfTheRunHadNotBeenInterrupted) {
  LossWatch before;
  std::int64_t step = 0;
  add(before, step, 60, 3);
  LossWatch after;
  after.restore(before.history());
  EXPECT_FALSE(after.risen_since());
  add(after, step, 6, 8);
  ASSERT_TRUE(after.risen_since()) << "a rise right after it is seen";
  EXPECT_LE(*after.risen_since(), 60);

  LossWatch later;  // which resumes while the loss is high
  later.restore(after.history());
  EXPECT_EQ(later.risen_since(), after.risen_since());
  auto const [messages, message] = add(later, step, 60, 8);
  EXPECT_EQ(messages, 1);
  EXPECT_THAT(message, HasSubstr("its best, 3.0000 at step "));
  EXPECT_EQ(later.risen_since(), after.risen_since());
}

TEST(LossWatch, SaysNothingOfNoiseOrAShortRise) {
  LossWatch watch;
  std::int64_t step = 0;
  add(watch, step, 40, 3);
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(add(watch, step, 1, 5).first, 0);
    EXPECT_EQ(add(watch, step, 3, 3).first, 0);
  }
  EXPECT_EQ(add(watch, step, 10, 6).first, 0);
  EXPECT_EQ(add(watch, step, 40, 3).first, 0);
}

}  // namespace
}  // namespace heddle
