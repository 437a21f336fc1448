#include <heddle/core/base/readable.hpp>

#include "test.hpp"

namespace heddle {
namespace {

TEST(ReadableCount, GroupsThousands) {
  EXPECT_EQ(readable_count(0), "0");
  EXPECT_EQ(readable_count(999), "999");
  EXPECT_EQ(readable_count(1000), "1,000");
  EXPECT_EQ(readable_count(24096), "24,096");
  EXPECT_EQ(readable_count(1104764), "1,104,764");
  EXPECT_EQ(readable_count(std::size_t{2000}), "2,000");
  EXPECT_EQ(readable_count(3311.6), "3,312");
  EXPECT_EQ(readable_count(-100), "-100");
  EXPECT_EQ(readable_count(-100000), "-100,000");
  EXPECT_EQ(readable_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(ReadableDecimal, GroupsThousandsOfTheWholePart) {
  EXPECT_EQ(readable_decimal(999.96, 1), "1,000.0");
  EXPECT_EQ(readable_decimal(12345.678, 2), "12,345.68");
  EXPECT_EQ(readable_decimal(-0.1234, 3), "-0.123");
  EXPECT_EQ(readable_decimal(123456, 0), "123,456");
  EXPECT_EQ(readable_decimal(std::numeric_limits<double>::infinity(), 1), "inf");
}

TEST(ReadableSize, TakesGibibytesFromOneOn) {
  EXPECT_EQ(readable_size(0), "0.0 MiB");
  EXPECT_EQ(readable_size(3 << 19), "1.5 MiB");
  EXPECT_EQ(readable_size((std::int64_t{1} << 30) - 1), "1,024.0 MiB");
  EXPECT_EQ(readable_size(std::int64_t{1} << 30), "1.0 GiB");
  EXPECT_EQ(readable_size(std::int64_t{5} << 40), "5,120.0 GiB");
}

TEST(ReadableDuration, TakesTheUnitsThatFit) {
  EXPECT_EQ(readable_duration(0), "0.0 s");
  EXPECT_EQ(readable_duration(59.4), "59.4 s");
  EXPECT_EQ(readable_duration(60), "1m00s");
  EXPECT_EQ(readable_duration(3599.9), "59m59s");
  EXPECT_EQ(readable_duration(7500), "2h05m");
}

TEST(UtcNow, HasDateAndTime) {
  EXPECT_THAT(utc_now(),
              testing::MatchesRegex("[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9] [012][0-9]:[0-5][0-9]:[0-6][0-9]"));
}

}  // namespace
}  // namespace heddle
