#include "run/directory/run_directory.hpp"

#include <sys/stat.h>

#include "run/directory/run_log.hpp"
#include "run/metrics/training_log.hpp"
#include "test.hpp"

namespace heddle {
namespace {

constexpr char const* of_another = "a file of another directory\n";

/// A run's directory in which NAME is a symbolic link to a file elsewhere.
class LinkedFileTest : public testing::Test {
 protected:
  void link(std::string const& name) const {
    std::filesystem::create_directory(run_);
    std::filesystem::create_symlink(target_, run_ / name);
  }
  void expect_target_unchanged() const { EXPECT_EQ(read_whole(target_), of_another); }

  TemporaryDirectory directory_;
  std::filesystem::path run_ = directory_ / "run";
  std::filesystem::path target_ = directory_.write("target", of_another);
};

TEST_F(LinkedFileTest, ALockIsRefused) {
  link(".lock");
  expect_config_error([&] { RunDirectory::open(run_); }, ".lock: is a symbolic link; move it away");
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
  expect_contains(testing::internal::GetCapturedStderr(), "log.txt: is a symbolic link; move it away");
  log.info("after");
  expect_target_unchanged();
}

TEST_F(LinkedFileTest, MetricsAreRefused) {
  link("metrics.jsonl");
  RunDirectory const opened = RunDirectory::open(run_);
  RunLog log(true, false, Verbosity::quiet);
  expect_data_error([&] { TrainingLog::open(opened, {.step = 3, .steps = 9}, log); },
                    "metrics.jsonl: is a symbolic link; move it away");
  expect_target_unchanged();
}

TEST_F(LinkedFileTest, AnIdentityIsReplaced) {
  link(".identity");
  EXPECT_EQ(RunDirectory::open(run_).identity().size(), 16U);
  EXPECT_FALSE(std::filesystem::is_symlink(run_ / ".identity"));
  expect_target_unchanged();
}

TEST(RunDirectoryTest, WhatIsNoRegularFileIsNotWaitedFor) {
  TemporaryDirectory const directory;
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
