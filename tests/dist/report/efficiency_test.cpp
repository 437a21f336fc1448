#include <gtest/gtest.h>

#include <heddle/dist/report/efficiency.hpp>

namespace heddle {
namespace {

StepTimes::Seconds rank(double all, double communicating) {
  return {.steps = 1, .all = all, .first = all, .communicating = communicating};
}

TEST(EfficiencyTest, ParallelEfficiencyIsTheProductOfItsParts) {
  // Computing: 8, 6, 4, 6 of 10 seconds.
  Efficiency const found = efficiency_of({rank(10, 2), rank(10, 4), rank(10, 6), rank(10, 4)});
  EXPECT_DOUBLE_EQ(found.load_balance, 6.0 / 8);
  EXPECT_DOUBLE_EQ(found.communication, 0.8);
  EXPECT_DOUBLE_EQ(found.parallel, 0.6);
  EXPECT_DOUBLE_EQ(found.parallel, found.load_balance * found.communication);
  EXPECT_EQ(found.slowest, 0);
  EXPECT_DOUBLE_EQ(found.waited_less, 14.0 / 3 - 2);
}

TEST(EfficiencyTest, OneRankThatDoesNotCommunicateIsPerfect) {
  Efficiency const found = efficiency_of({rank(10, 0)});
  EXPECT_EQ(found.load_balance, 1);
  EXPECT_EQ(found.parallel, 1);
  EXPECT_EQ(found.waited_less, 0);
}

}  // namespace
}  // namespace heddle
