#include "run/directory/run_progress.hpp"

#include <sys/stat.h>

#include <heddle/io/files/regular_file.hpp>

#include "test.hpp"

namespace heddle {
namespace {

TEST(NewestStep, IsThatOfMetricsOrCheckpoints) {
  TemporaryDirectory const run;
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
  TemporaryDirectory const run;
  ASSERT_EQ(::mkfifo((run.path() / metrics_name).c_str(), 0600), 0);
  fs::create_directories(run.path() / "checkpoints" / "step-00000005");
  EXPECT_EQ(newest_step(run.path()), 5);
}

TEST(NewestStep, IsUnknownWhereNothingCanBeRead) {
  TemporaryDirectory const run;
  fs::create_directory(run.path() / metrics_name);
  std::ofstream(run.path() / "checkpoints") << "a file";
  EXPECT_EQ(newest_step(run.path()), -1);
  fs::remove(run.path() / "checkpoints");
  fs::create_symlink("checkpoints", run.path() / "checkpoints");  // a loop
  EXPECT_EQ(newest_step(run.path()), -1);
  EXPECT_EQ(newest_step(run.path() / std::string(300, 'x')), -1);
}

TEST(ReportedOutcome, IsThatOfANewReport) {
  TemporaryDirectory const run;
  fs::path const report = run.path() / "report.json";
  auto const none = report_stamp(run.path());
  EXPECT_EQ(none, std::nullopt);
  EXPECT_EQ(reported_outcome(run.path(), none), std::nullopt);
  replace_file(report, R"({"state": "done"})");
  EXPECT_EQ(reported_outcome(run.path(), none), ExitCode::done);
  auto const earlier = report_stamp(run.path());
  EXPECT_EQ(reported_outcome(run.path(), earlier), std::nullopt);
  for (char const* const text : {R"({"state": "done"})", R"({"state": "stopped early"})"}) {
    replace_file(report, text);
    EXPECT_EQ(reported_outcome(run.path(), earlier), ExitCode::done) << text;
  }
  replace_file(report, R"({"state": "stopped by SIGUSR1"})");
  EXPECT_EQ(reported_outcome(run.path(), earlier), ExitCode::requeue);
  replace_file(report, R"({"state": "training"})");
  EXPECT_EQ(reported_outcome(run.path(), earlier), std::nullopt);
}

TEST(ReportedOutcome, IsUnknownInADamagedReport) {
  TemporaryDirectory const run;
  fs::path const report = run.path() / "report.json";
  for (char const* const text : {"", "{", "[]", "7", R"({"state": 7})", R"({"state": "done)", R"({"State": "done"})"}) {
    std::ofstream(report) << text;
    EXPECT_EQ(reported_outcome(run.path(), {}), std::nullopt) << text;
  }
  fs::remove(report);
  ASSERT_EQ(::mkfifo(report.c_str(), 0600), 0);
  EXPECT_EQ(reported_outcome(run.path(), {}), std::nullopt);
  fs::remove(report);
  fs::create_directory(report);
  EXPECT_EQ(reported_outcome(run.path(), {}), std::nullopt);
}

}  // namespace
}  // namespace heddle
