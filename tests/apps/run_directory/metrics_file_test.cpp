#include "run_directory/metrics_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;

TEST(NewestStep, IsThatOfMetricsOrCheckpoints) {
  test::TemporaryDirectory const run;
  EXPECT_EQ(newest_step(run.path()), -1);
  EXPECT_EQ(newest_step(run.path() / "absent"), -1);
  std::ofstream(run.path() / metrics_name) << "{\"step\":3}\n{\"step\":4}\nno line\n[5]\n{\"step\":\"6\"}\n{\"step\":7";
  EXPECT_EQ(newest_step(run.path()), 4);
  fs::create_directories(run.path() / "checkpoints" / "step-00000005");
  fs::create_directories(run.path() / "checkpoints" / "step-x");
  fs::create_directories(run.path() / "checkpoints" / "rejected-step-00000009");
  EXPECT_EQ(newest_step(run.path()), 5);
}

TEST(NewestStep, WaitsForNoFifo) {
  test::TemporaryDirectory const run;
  ASSERT_EQ(::mkfifo((run.path() / metrics_name).c_str(), 0600), 0);
  fs::create_directories(run.path() / "checkpoints" / "step-00000005");
  EXPECT_EQ(newest_step(run.path()), 5);
}

TEST(NewestStep, IsUnknownWhereNothingCanBeRead) {
  test::TemporaryDirectory const run;
  fs::create_directory(run.path() / metrics_name);
  std::ofstream(run.path() / "checkpoints") << "a file";
  EXPECT_EQ(newest_step(run.path()), -1);
  fs::remove(run.path() / "checkpoints");
  fs::create_symlink("checkpoints", run.path() / "checkpoints");  // a loop
  EXPECT_EQ(newest_step(run.path()), -1);
  EXPECT_EQ(newest_step(run.path() / std::string(300, 'x')), -1);
}

}  // namespace
}  // namespace heddle
