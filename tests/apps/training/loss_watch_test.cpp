#include "training/loss_watch.hpp"

#include "test.hpp"

namespace heddle {
namespace {

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
  expect_contains(message, "its best, 3.0000 at step ");
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
  expect_contains(message, "its best, 3.0000 at step ");
  EXPECT_EQ(later.risen_since(), after.risen_since());
}

TEST(LossWatch, ReportsALossThatStaysAboveThatOfEqualProbabilities) {
  LossWatch watch(1000, 100);  // ln 1,000 is 6.9078
  std::int64_t step = 0;
  EXPECT_EQ(add(watch, step, 100, 9).first, 0) << "the warm-up";
  EXPECT_TRUE(watch.at_end()) << "but a run that ends there has learnt nothing";
  auto const [messages, message] = add(watch, step, 200, 9);
  EXPECT_EQ(messages, 1);
  expect_contains(message, "the loss is 9.0000 on average over 20 steps, far above 6.9078");
  add(watch, step, 100, 7.5);
  EXPECT_FALSE(watch.at_end());
  add(watch, step, 100, 3);
  EXPECT_EQ(add(watch, step, 100, 6).first, 1) << "a rise";
  ASSERT_TRUE(watch.at_end());
  expect_contains(*watch.at_end(), "the loss ended at 6.0000 on average, far above its best, 3.0000 at step ");
  EXPECT_EQ(add(watch, step, 100, 3000).first, 0) << "the rise has been reported";
  expect_contains(*watch.at_end(), "the loss is 3000.0000 on average");
  LossWatch few(1000, 0);
  step = 0;
  add(few, step, 10, 3000);
  EXPECT_FALSE(few.at_end()) << "too few steps to judge";
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
