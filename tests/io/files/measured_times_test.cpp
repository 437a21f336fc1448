#include <sys/stat.h>

#include <heddle/io/files/measured_times.hpp>

#include "test.hpp"

namespace heddle {
namespace {

TimedWork const work{.cost = {.operations = 100, .bytes = 8},
                     .seconds = 1,
                     .first_seconds = 2,
                     .spread = 0.25,
                     .measured_at = 1.9e9,
                     .load = 0.5};

MeasuredTimes const example{
    .kernels = {{"this \"machine\"",
                 {{"gemm", {{"a problem", {{"onednn", 1.5e-3}, {"kokkos", 4e-3}}}, {"another", {{"kokkos", 1}}}}}}},
                {"that machine", {}}},
    .calls = {{"two ranks", {{"gemm forward, float32; 8 of 8", {work, {.cost = {200, 16}, .seconds = 3}}}}}},
    .network = {"measured", {{"inside_node message", {2e-6, 1e-9}}}}};

class MeasuredTimesTest : public testing::Test {
 protected:
  void write(std::string const& text) { std::ofstream(file_) << text; }

  TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_.path() / "kernels.json";
};

TEST_F(MeasuredTimesTest, TextAndBack) {
  EXPECT_EQ(parse_measured_times(to_json(example), "text"), example);
  EXPECT_EQ(parse_measured_times(to_json(MeasuredTimes()), "text"), MeasuredTimes());
}

// As versions wrote it that measured calls into another file.
TEST_F(MeasuredTimesTest, AFileOfKernelsOnlyIsRead) {
  MeasuredTimes const times = parse_measured_times(
      R"({"format": "heddle kernel times, version 1", "machines": {"m": {"gemm": {"p": {"a": 2}}}}})", "text");
  MeasuredTimes const expected{.kernels = {{"m", {{"gemm", {{"p", {{"a", 2}}}}}}}}};
  EXPECT_EQ(times, expected);
}

TEST_F(MeasuredTimesTest, AMissingFileHasNoTimes) {
  EXPECT_EQ(read_measured_times(file_), MeasuredTimes());
}

TEST_F(MeasuredTimesTest, AddsToWhatIsThereAndLeavesNothingElseBehind) {
  auto const deep = directory_.path() / "some/where/kernels.json";
  add_measured_times(deep, example);
  EXPECT_EQ(read_measured_times(deep), example);
  MeasuredTimes expected = example;
  add_measured_times(deep, {.kernels = {{"this \"machine\"", {{"gemm", {{"another", {{"onednn", 2}}}}}}}}});
  expected.kernels["this \"machine\""]["gemm"]["another"] = {{"onednn", 2}};
  EXPECT_EQ(read_measured_times(deep), expected);
  add_measured_times(deep, {.calls = {{"two ranks", {{"adam", {work}}}}, {"one rank", {}}}});
  expected.calls = {{"two ranks", {{"adam", {work}}}}};
  EXPECT_EQ(read_measured_times(deep), expected);
  add_measured_times(deep, {.network = {"again", {}}});
  expected.network = {"again", {}};
  EXPECT_EQ(read_measured_times(deep), expected);
  using Iterator = std::filesystem::directory_iterator;
  EXPECT_EQ(std::distance(Iterator(deep.parent_path()), Iterator()), 1);
}

TEST_F(MeasuredTimesTest, OtherContentIsNamedAndLeftUnchanged) {
  std::string const good = to_json(example);
  for (std::string const& text :
       {std::string(), std::string("{}"), std::string("[1, 2]"), good.substr(0, good.size() / 2), good + "}",
        std::string(R"({"format": "heddle kernel times, version 2", "machines": {}})"),
        std::string(R"({"format": "heddle kernel times, version 1", "machines": {"m": {"gemm": {"p": {"a": -1}}}}})"),
        std::string(R"({"format": "heddle kernel times, version 1", "machines": {"m": {"gemm": {"p": {"a": "1"}}}}})"),
        std::string(R"({"format": "heddle kernel times, version 1", "machines": {"m": {"gemm": 7}}})"),
        std::string(R"({"format": "heddle kernel times, version 1", "calls": {"m": {"adam": [[1, 2, 3]]}}})"),
        std::string(R"({"format": "heddle kernel times, version 1", "calls": {"m": {"k": [[1, 2, -3, 4, 5, 6, 7]]}}})"),
        std::string(R"({"format": "heddle kernel times, version 1", "network": {"links": {"a": [1, 2]}}})")}) {
    write(text);
    SCOPED_TRACE(text);
    std::string const message = file_.string() + ": is not a file of measured times";
    expect_data_error([&] { read_measured_times(file_); }, message);
    expect_data_error([&] { add_measured_times(file_, example); }, message);
    std::ostringstream left;
    left << std::ifstream(file_).rdbuf();
    EXPECT_EQ(left.str(), text);
  }
}

TEST_F(MeasuredTimesTest, ADirectoryIsNotAFile) {
  std::filesystem::create_directory(file_);
  EXPECT_THROW(read_measured_times(file_), DataError);
  EXPECT_THROW(add_measured_times(file_, example), Error);
  EXPECT_THROW(add_measured_times("/proc/no/kernels.json", example), Error);
}

TEST_F(MeasuredTimesTest, AFileThatWaitsForAWriterIsNotOpened) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THROW(read_measured_times(file_), DataError);
}

}  // namespace
}  // namespace heddle
