#include "planning/plan_files.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <heddle/core/base/error.hpp>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr char const* kind = "gemm forward, float32; 8 of 8";

std::string text_of(std::filesystem::path const& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Files of the version before have neither date nor load: their times are read, and measured again.
TEST(PlanFilesTest, TimesOfTheVersionBeforeHaveNoDate) {
  test::TemporaryDirectory const directory;
  auto const path = directory.path() / call_times_file_name;
  std::ofstream(path) << R"({"format":"heddle times of kernels' calls, version 1","circumstances":{"here":{"kinds":{")"
                      << kind << R"(":[[100,8,3,4]]}},"elsewhere":{"kinds":{")" << kind << R"(":[[100,8,7,8]]}}}})";
  KernelTimes times = read_call_times(path, "here");
  ASSERT_FALSE(times.empty());
  EXPECT_EQ(times.all().at(kind).front(),
            (TimedWork{.cost = {.operations = 100, .bytes = 8}, .seconds = 3, .first_seconds = 4}));
  EXPECT_EQ(distrust(times.all().at(kind).front(), 2e9), "without a date");

  TimedWork const measured{.cost = {.operations = 100, .bytes = 8},
                           .seconds = 1,
                           .first_seconds = 2,
                           .spread = 0.25,
                           .measured_at = 1.9e9,
                           .load = 0.5};
  times.add(kind, measured);
  write_call_times(path, "here", times);
  EXPECT_THAT(text_of(path), HasSubstr("version 2"));
  EXPECT_EQ(read_call_times(path, "here").all().at(kind).front(), measured);
  EXPECT_DOUBLE_EQ(read_call_times(path, "elsewhere").all().at(kind).front().seconds, 7);
}

TEST(PlanFilesTest, OtherContentIsNamed) {
  test::TemporaryDirectory const directory;
  auto const path = directory.path() / call_times_file_name;
  std::ofstream(path) << R"({"format":"something else"})";
  EXPECT_THAT([&] { static_cast<void>(read_call_times(path, "here")); },
              ThrowsMessage<DataError>(HasSubstr("version 2\" (it has another format); remove it")));
}

}  // namespace
}  // namespace heddle
