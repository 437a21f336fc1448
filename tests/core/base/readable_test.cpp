#include <gtest/gtest.h>

#include <heddle/core/base/readable.hpp>
#include <limits>

namespace heddle {
namespace {

TEST(ReadableCount, GroupsThousands) {
  EXPECT_EQ(readable_count(0), "0");
  EXPECT_EQ(readable_count(999), "999");
  EXPECT_EQ(readable_count(1000), "1,000");
  EXPECT_EQ(readable_count(24096), "24,096");
  EXPECT_EQ(readable_count(1104764), "1,104,764");
  EXPECT_EQ(readable_count(-100), "-100");
  EXPECT_EQ(readable_count(-100000), "-100,000");
  EXPECT_EQ(readable_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(ReadableDuration, TakesTheUnitsThatFit) {
  EXPECT_EQ(readable_duration(0), "0.0 s");
  EXPECT_EQ(readable_duration(59.4), "59.4 s");
  EXPECT_EQ(readable_duration(60), "1m00s");
  EXPECT_EQ(readable_duration(3599.9), "59m59s");
  EXPECT_EQ(readable_duration(7500), "2h05m");
}

}  // namespace
}  // namespace heddle
