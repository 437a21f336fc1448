#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/kernel_timings_file.hpp>
#include <sstream>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

TimingsByMachine const example{
    {"this \"machine\"",
     {{"gemm", {{"a problem", {{"onednn", 1.5e-3}, {"kokkos", 4e-3}}}, {"another", {{"kokkos", 1}}}}}}},
    {"that machine", {}}};

class KernelTimingsFileTest : public testing::Test {
 protected:
  void write(std::string const& text) { std::ofstream(file_) << text; }

  test::TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_.path() / "kernels.json";
};

TEST_F(KernelTimingsFileTest, TextAndBack) {
  EXPECT_EQ(parse_kernel_timings(to_json(example), "text"), example);
  EXPECT_EQ(parse_kernel_timings(to_json(TimingsByMachine()), "text"), TimingsByMachine());
}

TEST_F(KernelTimingsFileTest, NoFileHoldsNothing) {
  EXPECT_EQ(read_kernel_timings(file_), TimingsByMachine());
}

TEST_F(KernelTimingsFileTest, AddsProblemByProblemAndLeavesNothingElseBehind) {
  auto const deep = directory_.path() / "some/where/kernels.json";
  add_kernel_timings(deep, example);
  EXPECT_EQ(read_kernel_timings(deep), example);
  add_kernel_timings(deep, {{"this \"machine\"", {{"gemm", {{"another", {{"onednn", 2}}}}}}}});
  TimingsByMachine expected = example;
  expected["this \"machine\""]["gemm"]["another"] = {{"onednn", 2}};
  EXPECT_EQ(read_kernel_timings(deep), expected);
  using Iterator = std::filesystem::directory_iterator;
  EXPECT_EQ(std::distance(Iterator(deep.parent_path()), Iterator()), 1);
}

TEST_F(KernelTimingsFileTest, WhatIsNoSuchFileIsNamedAndLeftAlone) {
  std::string const good = to_json(example);
  for (std::string const& text :
       {std::string(), std::string("{}"), std::string("[1, 2]"), good.substr(0, good.size() / 2), good + "}",
        std::string(R"({"format": "heddle kernel times, version 2", "machines": {}})"),
        std::string(R"({"format": "heddle kernel times, version 1", "machines": {"m": {"gemm": {"p": {"a": -1}}}}})"),
        std::string(R"({"format": "heddle kernel times, version 1", "machines": {"m": {"gemm": {"p": {"a": "1"}}}}})"),
        std::string(R"({"format": "heddle kernel times, version 1", "machines": {"m": {"gemm": 7}}})")}) {
    write(text);
    auto const names_it =
        testing::ThrowsMessage<DataError>(testing::HasSubstr(file_.string() + ": holds no kernel times"));
    EXPECT_THAT([&] { read_kernel_timings(file_); }, names_it) << text;
    EXPECT_THAT([&] { add_kernel_timings(file_, example); }, names_it) << text;
    std::ostringstream left;
    left << std::ifstream(file_).rdbuf();
    EXPECT_EQ(left.str(), text);
  }
}

TEST_F(KernelTimingsFileTest, ADirectoryIsNoFile) {
  std::filesystem::create_directory(file_);
  EXPECT_THROW(read_kernel_timings(file_), DataError);
  EXPECT_THROW(add_kernel_timings(file_, example), Error);
  EXPECT_THROW(add_kernel_timings("/proc/no/kernels.json", example), Error);
}

TEST_F(KernelTimingsFileTest, AFileThatWaitsForAWriterIsNotOpened) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THROW(read_kernel_timings(file_), DataError);
}

}  // namespace
}  // namespace heddle
