#include <heddle/dist/planning/kernel_times.hpp>

#include "test.hpp"

namespace heddle {
namespace {

Cost operations(double count) {
  return {.operations = count, .bytes = 0};
}

TEST(KernelTimes, InterpolatesBetweenSizesAndScalesBeyondThem) {
  KernelTimes times;
  times.add("gemm forward, float32; 8 of 8", {operations(100), 1, 2});
  times.add("gemm forward, float32; 8 of 8", {operations(300), 2, 4});
  auto const seconds = [&](double count) {
    return times.time("gemm forward, float32; 8 of 8", operations(count))->seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(100), 1);
  EXPECT_DOUBLE_EQ(seconds(200), 1.5);
  EXPECT_DOUBLE_EQ(seconds(50), 0.5);
  EXPECT_DOUBLE_EQ(seconds(600), 4);
  EXPECT_DOUBLE_EQ(times.time("gemm forward, float32; 8 of 8", operations(200))->first_seconds, 3);
}

TEST(KernelTimes, ANewTimeOfOneSizeReplacesTheOld) {
  KernelTimes times;
  times.add("a; b", {operations(100), 1, 1});
  times.add("a; b", {operations(100), 5, 5});
  EXPECT_EQ(times.all().at("a; b").size(), 1U);
  EXPECT_DOUBLE_EQ(times.time("a; b", operations(100))->seconds, 5);
}

TEST(KernelTimes, AnUnknownKindTakesTheRateOfItsFamily) {
  KernelTimes times;
  times.add("gemm forward, float32; 8 of 8", {operations(100), 1, 1});
  times.add("gemm forward, float32; 64 of 64", {operations(10000), 50, 50});
  times.add("gemm weight gradient, float32; 8 of 8", {operations(100), 9, 9});
  EXPECT_DOUBLE_EQ(times.time("gemm forward, float32; 32 of 32", operations(20000))->seconds, 100);
  EXPECT_DOUBLE_EQ(times.time("gemm forward, float32; 4 of 4", operations(50))->seconds, 0.5);
  EXPECT_FALSE(times.time("gemm forward, bfloat16; 8 of 8", operations(100)));
}

TEST(KernelTimes, KnowsSizesThatAreNearOrBetween) {
  KernelTimes times;
  times.add("a; b", {operations(100), 1, 1});
  EXPECT_TRUE(times.knows("a; b", operations(105), true));
  EXPECT_FALSE(times.knows("a; b", operations(200), false));
  EXPECT_FALSE(times.knows("a; c", operations(100), false));
  times.add("a; b", {operations(400), 1, 1});
  EXPECT_TRUE(times.knows("a; b", operations(200), false));
  EXPECT_FALSE(times.knows("a; b", operations(200), true));
  EXPECT_FALSE(times.knows("a; b", operations(800), false));
}

TEST(KernelTimes, CallsWithoutProductsCountByBytes) {
  KernelTimes times;
  times.add("add; x", {{.operations = 0, .bytes = 10}, 1, 1});
  EXPECT_DOUBLE_EQ(times.time("add; x", {.operations = 0, .bytes = 30})->seconds, 3);
}

constexpr double now = 2e9;
constexpr double day = 24 * 3600;

TEST(KernelTimes, AreDistrustedWhenOldOrTakenOnABusyMachine) {
  EXPECT_EQ(untrusted_reason({.cost = {}, .measured_at = now - day, .load = 0.2}, now), "");
  EXPECT_EQ(untrusted_reason({.cost = {}, .measured_at = now - day, .load = 17.5}, now), "taken on a busy machine");
  EXPECT_EQ(untrusted_reason({.cost = {}, .measured_at = now - 31 * day}, now), "older than a month");
  EXPECT_EQ(untrusted_reason({}, now), "without a date");
}

TEST(KernelTimes, ForgottenOnesAreUsedUntilTheyAreMeasuredAgain) {
  KernelTimes times;
  times.add("a; b", {.cost = operations(100), .seconds = 5, .measured_at = now, .load = 9});
  times.add("a; b", {.cost = operations(900), .seconds = 6, .measured_at = now});
  times.forget(now, false);
  EXPECT_FALSE(times.knows("a; b", operations(100), true));
  EXPECT_TRUE(times.knows("a; b", operations(900), true));
  EXPECT_DOUBLE_EQ(times.time("a; b", operations(100))->seconds, 5);
  times.add("a; b", {.cost = operations(100), .seconds = 1, .measured_at = now});
  EXPECT_TRUE(times.knows("a; b", operations(100), true));
  times.forget(now, true);
  EXPECT_FALSE(times.knows("a; b", operations(100), true));
  EXPECT_FALSE(times.knows("a; b", operations(900), true));
}

TEST(KernelTimes, OfTwoThatWereTakenOnABusyMachineTheShorterStays) {
  KernelTimes times;
  auto const add = [&](double seconds, double load) {
    times.add("a; b", {.cost = operations(100), .seconds = seconds, .first_seconds = 2 * seconds, .load = load});
    return times.time("a; b", operations(100))->seconds;
  };
  EXPECT_DOUBLE_EQ(add(3, 9), 3);
  EXPECT_DOUBLE_EQ(add(5, 9), 3);
  EXPECT_DOUBLE_EQ(add(4, 0), 4) << "a quiet machine's time replaces it";
  EXPECT_DOUBLE_EQ(add(5, 0), 5);
}

// Where one call of a layout is unknown, all of them are measured.
TEST(KernelTimes, ABusyMachineReplacesTimesOfAQuietOneOnlyIfTheyAreForgotten) {
  KernelTimes times;
  auto const add = [&](double seconds, double load) {
    times.add("a; b", {.cost = operations(100), .seconds = seconds, .measured_at = now, .load = load});
    return times.time("a; b", operations(100))->seconds;
  };
  EXPECT_DOUBLE_EQ(add(3, 0), 3);
  EXPECT_DOUBLE_EQ(add(9, 9), 3);
  EXPECT_DOUBLE_EQ(add(2, 9), 3);
  EXPECT_EQ(times.all().at("a; b").front().load, 0);
  times.forget(now, false);
  EXPECT_DOUBLE_EQ(add(9, 9), 3) << "it is trusted";
  times.forget(now, true);
  EXPECT_DOUBLE_EQ(add(9, 9), 9);
  EXPECT_TRUE(times.knows("a; b", operations(100), true));
}

}  // namespace
}  // namespace heddle
