#include "run/directory/run_directory.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <heddle/core/base/error.hpp>

#include "run/directory/run_log.hpp"
#include "run/metrics/training_log.hpp"
#include "temporary_directory.hpp"

namespace heddle {
namespace {

using test::message_of;
using test::read_whole;
using testing::HasSubstr;

constexpr char const* of_another = "a file of another directory\n";

/// A run's directory in which NAME is a symbolic link to a file elsewhere.
class LinkedFileTest : public testing::Test {
 protected:
  void link(std::string const& name) const {
    std::filesystem::create_directory(run_);
    std::filesystem::create_symlink(target_, run_ / name);
  }
  void expect_target_unchanged() const { EXPECT_EQ(read_whole(target_), of_another); }

  test::TemporaryDirectory directory_;
  std::filesystem::path run_ = directory_ / "run";
  std::filesystem::path target_ = directory_.write("target", of_another);
};

TEST_F(LinkedFileTest, ALockIsRefused) {
  link(".lock");
  EXPECT_THAT(message_of<ConfigError>([&] { RunDirectory::open(run_); }),
              HasSubstr(".lock: is a symbolic link; move it away"));
  EXPECT_EQ(RunDirectory::last_holder(run_), "");
  expect_target_unchanged();
}

TEST_F(LinkedFileTest, ALogIsNotWritten) {
  link("log.txt");
  RunDirectory const opened = RunDirectory::open(run_);
  RunLog log(true, false, Verbosity::quiet);
  log.info("before");
  testing::internal::CaptureStderr();
  log.open(opened);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("log.txt: is a symbolic link; move it away"));
  log.info("after");
  expect_target_unchanged();
}

TEST_F(LinkedFileTest, MetricsAreRefused) {
  link("metrics.jsonl");
  RunDirectory const opened = RunDirectory::open(run_);
  RunLog log(true, false, Verbosity::quiet);
  EXPECT_THAT(message_of<DataError>([&] { TrainingLog::open(opened, {.step = 3, .steps = 9}, log); }),
              HasSubstr("metrics.jsonl: is a symbolic link; move it away"));
  expect_target_unchanged();
}

TEST_F(LinkedFileTest, AnIdentityIsReplaced) {
  link(".identity");
  EXPECT_EQ(RunDirectory::open(run_).identity().size(), 16U);
  EXPECT_FALSE(std::filesystem::is_symlink(run_ / ".identity"));
  expect_target_unchanged();
}

TEST(RunDirectoryTest, WhatIsNoRegularFileIsNotWaitedFor) {
  test::TemporaryDirectory const directory;
  for (char const* const name : {"log.txt", ".identity"}) {
    ASSERT_EQ(::mkfifo((directory / name).c_str(), 0600), 0);
  }
  RunDirectory const opened = RunDirectory::open(directory.path());
  EXPECT_EQ(opened.identity().size(), 16U);
  RunLog log(true, false, Verbosity::quiet);
  log.open(opened);
  log.info("text");
}

}  // namespace
}  // namespace heddle
